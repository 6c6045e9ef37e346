"""Finds the comments for a table: those of the newest versions of its messages, and the app's own.

The reasons: docs/decisions/comments.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spark_app.model.columns import Comments, Path
from spark_app.model.record_schemas import NUMBER
from spark_app.model.table_names import TableNames
from spark_app.protobuf.columns.fields import column_comments
from spark_app.protobuf.schemas.ledger import Entry, Ledger
from spark_app.tables.admission import TableAdmission

MOST_OF_TABLE = 200_000  # characters of a table's comments: each commit of columns and each checkpoint repeats them
COORDINATES = {
    "topic": "Kafka topic of the record",
    "topic_id": "Kafka's id of the topic: another one after the topic was created again",
    "partition": "Kafka partition of the record",
    "offset": "Kafka offset of the record; with topic, topic_id and partition it names the record in every table",
}
SCHEMAS = {
    "schema_id": "Registry id of the schema that wrote the record",
    "schema_guid": "Registry GUID of the schema that wrote the record, if its frame has a GUID instead of an id",
}
FAILED = {
    "table": "Silver table in which the row would be",
    "rules": "Names of the rules that the row fails",
    "definition": "Number of the definition of the table's rules, see _protolake/definitions.json",
}
RECORD = COORDINATES | {
    "key": "Key of the record, as bytes",
    "value": "Value of the record, as bytes; NULL for a tombstone, or if the value is over the size limit",
    "headers": "Headers of the record: JSON array of {key, value in base64}",
    "timestamp": "Kafka timestamp of the record, UTC",
    "timestamp_type": "0 = the producer set the timestamp, 1 = the broker",
    **SCHEMAS,
    "landed_at": "When the unit with the record began to be written, UTC",
    "omitted_bytes": "Size of the value, if it is over the size limit",
    "omitted_sha256": "SHA-256 of the value in hex, if it is over the size limit",
    NUMBER: "The number that was sent as timestamp, if it is outside the years 1 to 9999",
}
LINEAGE = {
    **{f"_{name}": text for name, text in (COORDINATES | SCHEMAS).items()},
    "_kafka_timestamp": RECORD["timestamp"],
    "_landed_at": RECORD["landed_at"],
    "_key": "Key of the record, decoded to JSON",
    "_wrapper": "The other fields of the message that carried the event",
    "_definition": "Number of the rules that the row has met, see _protolake/definitions.json; NULL = there were none",
}
QUARANTINE = {
    **RECORD,
    **FAILED,
    "cause": "Why the record could not be decoded or routed, or that its row fails a rule",
    "hop": "First word of the cause",
    "detail": "The error in words",
    "message_type": "Full name of the Protobuf message, if it is known",
    "refused_schema": "Id or GUID of the schema, if the schema was refused",
    "quarantined_at": "When the record was quarantined, UTC",
}
DEFERRED = {
    **COORDINATES,
    **SCHEMAS,
    "waits_for": "Schema id or GUID, decision about it, or paused rule that the record waits for; NULL = none",
    "deferred_at": "When the record began to wait, UTC",
    "table": "Silver table, if the record waits because that table is paused",
}
RESOLVED = {
    **COORDINATES,
    **SCHEMAS,
    "cause": "Why the record was in quarantine",
    "table": "Silver table that has the row now",
    "resolved_at": "When the replay placed the record, UTC",
    "unit": "Number of the unit that placed the record",
}
DROPPED = {**COORDINATES, **SCHEMAS, **FAILED, "dropped_at": "When the record was dropped, UTC"}
LOST = {
    **{name: text for name, text in COORDINATES.items() if name != "offset"},
    "first": "First offset that is lost",
    "end": "Offset after the last one that is lost; NULL = all offsets from the first one on",
    "reason": "How the records were lost",
    "accepted_at": "When the loss was accepted, UTC",
    "unit": "Number of the unit that accepted the loss",
}


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


def own_comments(layout: TableNames, table: str) -> dict[Path, str]:
    """Path -> comment; the empty path is the table. Empty for gold, whose columns the settings name."""
    if layout.is_silver(table):
        return _with_table("Decoded records of one routing value: fields of the message, then lineage (_...)", LINEAGE)
    tables = {
        layout.bronze: ("Every record as Kafka delivered it", RECORD),
        layout.quarantine: ("Records that could not be decoded or routed, or that fail a rule", QUARANTINE),
        layout.deferred: ("Records in bronze that are decoded later", DEFERRED),
        layout.resolved: ("Records of quarantine that a replay has placed in silver", RESOLVED),
        layout.dropped: ("Records that a rule keeps out of silver; bronze has their bytes", DROPPED),
        layout.lost: ("Offsets that Kafka lost and a person has accepted as lost", LOST),
    }
    return _with_table(*tables[table]) if table in tables else {}


def own_columns() -> Iterator[str]:
    """The paths of the columns of these tables, and of all that they contain."""
    yield from LINEAGE | QUARANTINE | DEFERRED | RESOLVED | DROPPED | LOST
    yield "rules.element"


def _with_table(text: str, columns: Mapping[str, str]) -> dict[Path, str]:
    return {(): text, **{(name,): comment for name, comment in columns.items()}}
