"""Which columns have fields that some version calls otherwise, by the ledger and without the app's own aliases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from google.protobuf.descriptor import Descriptor

from spark_app.audit.expected import names_of
from spark_app.audit.schemas import Schemas
from spark_app.model.record_schemas import RESERVED


class RenamedFields:
    """The columns of messages, and the names of their fields that were no column's when they came."""

    def __init__(self, schemas: Schemas):
        self._columns: dict[str, set[str]] = defaultdict(set)
        self._column_of: dict[str, dict[str, str]] = defaultdict(dict)
        for message, decoded in schemas.both_forms():
            self._add(message, decoded)

    def _add(self, message: Descriptor, decoded: Descriptor) -> None:
        name, columns = message.full_name, names_of(decoded, set(RESERVED))
        self._columns[name] |= {column.lower() for column in columns.values()}
        for field in message.fields:
            if field.name.lower() not in self._columns[name] | RESERVED:
                self._column_of[name].setdefault(field.name, columns[field.number])

    def column(self, message: str, name: str, columns: Collection[str]) -> str:
        """The column of a message's rows that a setting calls by this name.

        Args:
            columns: those of the schema that wrote the rows.
        """
        return name if name in columns else self._column_of.get(message, {}).get(name, name)

    def column_in_table(self, messages: Iterable[str], name: str, columns: Collection[str]) -> str:
        """The same for the rows of a table with these message types. No version may have a column of the name.

        Args:
            columns: those that the table has by now.
        """
        kinds = [message.rpartition("/")[2].partition("#")[0] for message in messages]
        there = {column.lower() for column in columns}.union(*(self._columns.get(kind, ()) for kind in kinds))
        if name.lower() in there:
            return name
        renamed = (self._column_of.get(kind, {}).items() for kind in kinds)
        return next((column for names in renamed for other, column in names if other.lower() == name.lower()), name)

    def names(self) -> dict[str, str]:
        """Name of a field in lower case -> its column, of all messages."""
        every = [pair for names in self._column_of.values() for pair in names.items()]
        return {name.lower(): column for name, column in reversed(every)}
