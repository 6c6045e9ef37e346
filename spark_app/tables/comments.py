"""Finds the comments for a table: those of the newest versions of its messages, and the app's own."""

from __future__ import annotations

from collections.abc import Iterable

from spark_app.model.comments import Comments, Path
from spark_app.model.table_names import TableNames
from spark_app.protobuf.columns.comments import column_comments
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_entry import Entry
from spark_app.tables.admission import TableAdmission
from spark_app.tables.own_comments import own_comments

MOST_OF_TABLE = 200_000  # characters of a table's comments: each commit of columns and each checkpoint repeats them


class TableComments:
    """Looks comments up in the ledger. They are needed only when a table begins or gets columns."""

    def __init__(self, ledger: Ledger, tables: TableAdmission, layout: TableNames):
        self._ledger = ledger
        self._tables = tables
        self._layout = layout
        self._known: dict[tuple[str, str, str], dict[Path, str]] = {}  # digests and message -> comments

    def of(self, table: str) -> Comments:
        """The comments for a table, whether or not it exists."""
        name = self._layout.name_of(table) if self._layout.is_silver(table) else ""
        authored = self._of_messages(self._tables.messages.get(name, ()))
        touched = self._tables.touched(name) if name else frozenset()  # what the message says is not true of them
        authored = {path: text for path, text in authored.items() if not path or path[0].casefold() not in touched}
        return Comments(_within_limit(authored), own_comments(self._layout, table), touched)

    def _of_messages(self, kinds: Iterable[str]) -> dict[Path, str]:
        """The comments of message types (`Wrapper/Inner` for a wrapped one). Of several comments for one column the one
        of the newest schema counts, and in one schema that of the table's first message type."""
        found: dict[Path, str] = {}
        last_first = [*kinds][::-1]
        for entry in self._ledger.commented():
            for kind in last_first:
                outer, _, inner = kind.rpartition("/")
                rest = self._of_schema(entry, outer) if outer else {}
                found |= {("_wrapper", *path): text for path, text in rest.items() if path}
                found |= self._of_schema(entry, inner)
        return found

    def _of_schema(self, entry: Entry, kind: str) -> dict[Path, str]:
        """The comments of a message type in one schema; none if the schema has another message of its name."""
        name = kind.partition("#")[0]
        if self._ledger.catalog().type_of(entry.key, name) != kind:
            return {}
        known = entry.decoded or entry.digest, entry.comments, name
        if known not in self._known:
            message = self._ledger.message(entry.key, name)
            self._known[known] = column_comments(message, self._ledger.comments_of(entry)) if message else {}
        return self._known[known]


def _within_limit(comments: dict[Path, str]) -> dict[Path, str]:
    """The comments up to `MOST_OF_TABLE` characters, those of outer columns first."""
    kept: dict[Path, str] = {}
    left = MOST_OF_TABLE
    for path, text in sorted(comments.items(), key=lambda item: len(item[0])):
        left -= len(text)
        if left < 0:
            break
        kept[path] = text
    return kept
