"""The columns that rows of silver have as their records were sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_app.model.catalog import SchemaKey
from spark_app.model.wrapper import Wrapper
from spark_app.page.lineage.graph import APP, By, Place
from spark_app.page.lineage.record_columns import OF_BRONZE
from spark_app.protobuf.changes.field_names import other_names
from spark_app.protobuf.columns.fields import column_fields, owner_of
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.unwrap import COLUMN

Source = tuple[Place, By]
Sources = Mapping[str, tuple[Source, ...]]  # path of a column -> what it is made of


def record_columns(bronze: str) -> Sources:
    """The columns about the record, which all silver tables may have."""
    found: dict[str, tuple[Source, ...]] = {
        name: ((Place(bronze, column), By("derived" if name == "_key" else "record")),)
        for name, column in OF_BRONZE.items()
    }
    return found | {"_definition": ((Place(APP), By("made")),)}


def schemas_of(ledger: Ledger, kind: str) -> list[SchemaKey]:
    """The decodable schemas with messages of a message type."""
    name, catalog = kind.partition("#")[0], ledger.catalog()
    having = (key for key in catalog.decodable if name in ledger.message_names(key))
    return [key for key in having if catalog.type_of(key, name) == kind]


def message_columns(ledger: Ledger, messages: Iterable[str], wrapper: Wrapper | None) -> Sources:
    """The columns that the messages of a silver table give.

    Args:
        messages: message types, `Wrapper/Inner` for a wrapped one.
    """
    found: dict[tuple[str, Place, By], list[SchemaKey]] = {}
    for message in messages:
        outer, _, inner = message.rpartition("/")
        for key, path, place, by in _fields_of(ledger, inner):
            found.setdefault((path, place, by), []).append(key)
        if outer and wrapper is not None:
            for key, path, place, by in _fields_of(ledger, outer):
                if path.partition(".")[0] not in wrapper.own:
                    found.setdefault((f"{COLUMN}.{path}", place, by), []).append(key)
                    found.setdefault((COLUMN, Place(place.node), By("wrapper")), []).append(key)
    sources: dict[str, tuple[Source, ...]] = {}
    for (path, place, by), keys in found.items():
        source = place, replace(by, schemas=tuple(dict.fromkeys(keys)))
        sources[path] = (*sources.get(path, ()), source)
    return sources


def _fields_of(ledger: Ledger, kind: str) -> Iterator[tuple[SchemaKey, str, Place, By]]:
    """(schema, path of the column, field, how) of a message type in all its schemas."""
    for key in schemas_of(ledger, kind):
        entry = ledger.entries[key]
        message = ledger.message(key, kind.partition("#")[0])
        if message is None:
            continue
        renamed = other_names(ledger.descriptor_set(entry.digest), ledger.decoded_set(entry))
        for path, fields in column_fields(message):
            names = [renamed.get((owner_of(field), field.number), (field.name, ""))[0] for field in fields]
            by = By("field", number=fields[-1].number, message=owner_of(fields[-1]))
            yield key, ".".join(path), Place(f"message:{kind}", ".".join(names)), by
