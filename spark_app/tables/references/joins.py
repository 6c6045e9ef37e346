"""The reference tables that are joined to the rows of each silver table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from spark_app.lake.lake import Lake
from spark_app.model.columns import Aliases, aliased_fields, column_of
from spark_app.model.definitions import Join
from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.settings.silver import Reference
from spark_app.tables.expectations.checks import LINEAGE, unknown_column
from spark_app.tables.references.joining import is_key, is_text
from spark_app.tables.references.snapshots import Version
from spark_app.tables.references.tables import ReferenceTables


class TableJoins:
    """Of one lake.

    Attributes:
        references: the tables that are followed.
    """

    def __init__(self, lake: Lake, settings: Mapping[str, Reference]):
        self.references = ReferenceTables(lake, settings)
        self._settings = settings
        self._versions: dict[str, Version] = {}
        self._logged: set[tuple[str, str]] = set()

    def follow(self) -> bool:
        """Take the newest versions of the reference tables; True if a version is another one than before.

        Raises:
            ConfigurationError, ContractError: as `ReferenceTables.versions`.
        """
        before, self._versions = self._versions, self.references.versions()
        return before != self._versions

    def of(self, name: str, sent: pa.Schema, aliases: Aliases) -> tuple[Join, ...]:
        """The joins of a silver table: of the reference tables whose key the looked-up column fits.

        Args:
            name: its routing name.
            sent: the columns of its messages.
            aliases: their other names.
        """
        found = []
        for reference, version in self._versions.items():
            field = _field(sent, aliases, self._settings[reference].looked_up)
            problem = None if field is None else _misfit(field, version)
            if problem is not None and name and (name, reference) not in self._logged:
                self._logged.add((name, reference))
                log.warning("a reference table is not joined", table=name, reference=reference, reason=problem)
            if field is not None and problem is None:
                found.append(Join(reference, field.name, self._settings[reference].names, version.content))
        return tuple(found)

    def fields(self, joins: Iterable[Join]) -> Iterator[tuple[str, pa.Field]]:
        """(reference table, column) of the columns that rows get."""
        for join in joins:
            yield from ((join.reference, field) for field in self._versions[join.reference].joined)

    def check(self, tables: Sequence[tuple[pa.Schema, Aliases, Sequence[Join]]]) -> None:
        """
        Args:
            tables: the columns of the messages, their other names, and the joins, of each table and each message that
                is known.

        Raises:
            ConfigurationError: a reference table is joined to none of them.
        """
        joined = {join.reference for _, _, joins in tables for join in joins}
        for reference in sorted(self._versions.keys() - joined) if tables else ():
            wanted, version = self._settings[reference].looked_up, self._versions[reference]
            fields = [found for sent, aliases, _ in tables if (found := _field(sent, aliases, wanted)) is not None]
            names = dict.fromkeys(
                field.name for sent, aliases, _ in tables for field in (*sent, *aliased_fields(sent, aliases))
            )
            why = _misfit(fields[0], version) if fields else unknown_column(wanted, [*names, *LINEAGE.names])
            raise ConfigurationError(f"reference.{reference}.on: {why}")


def _field(sent: pa.Schema, aliases: Aliases, named: str) -> pa.Field | None:
    fields, name = (*sent, *LINEAGE), column_of(named, sent.names, aliases)
    return next((field for field in fields if field.name.casefold() == name.casefold()), None)


def _misfit(field: pa.Field, version: Version) -> str | None:
    """Why the values of a column cannot be looked up; None = they can."""
    key = version.key_type
    if is_key(field.type) and is_text(field.type) == is_text(key):
        return None
    return f"{field.name} is {field.type}, but the key of the reference table is {key}"
