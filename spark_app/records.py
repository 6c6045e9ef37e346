"""What the hops exchange. Frozen, picklable, free of Spark and of settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pyarrow as pa

# A message index as Confluent frames it: the path from the file to the message, [0] being the first message.
MessageIndex = tuple[int, ...]
# What names a schema in a frame: its id, or its GUID in the usual text form.
SchemaKey = int | str


def read_schema_key(text: str) -> SchemaKey:
    """The key whose `str` the text is."""
    return int(text) if text.isdecimal() else text


class Cause(StrEnum):
    """Why a record is in quarantine. The first word is the hop that refused it."""

    RECORD_SIZE = "record_size"
    FRAME_SHORT = "frame_short"
    FRAME_MAGIC = "frame_magic"
    FRAME_INDEX = "frame_index"
    FRAME_HEADER = "frame_header"
    FRAME_WRAPPER = "frame_wrapper"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_INVALID = "schema_invalid"
    SCHEMA_INDEX = "schema_index"
    DECODE_PAYLOAD = "decode_payload"
    DECODE_RANGE = "decode_range"
    DECODE_TYPE = "decode_type"
    DECODE_CRASH = "decode_crash"
    ROUTE_MISSING = "route_missing"
    ROUTE_NAME = "route_name"
    ROUTE_REFUSED = "route_refused"
    ROUTE_COLLISION = "route_collision"
    ROUTE_CAP = "route_cap"

    @property
    def hop(self) -> str:
        return self.value.split("_", 1)[0]


Reject = tuple[int, Cause, str]  # row of a batch, cause, detail

CAUSE_HELP: Mapping[Cause, str] = {
    Cause.RECORD_SIZE: "the value is larger than `batch.max_record_bytes`: only its size and SHA-256 are kept",
    Cause.FRAME_SHORT: "the value is shorter than a frame (magic byte, schema id or GUID, message index)",
    Cause.FRAME_MAGIC: "the first byte is neither 0 nor 1, and no schema is set for records without a frame",
    Cause.FRAME_INDEX: "the schema is Protobuf, but the message index is not a list of zig-zag varints",
    Cause.FRAME_HEADER: "the `__value_schema_id` header is not a schema id or GUID with a message index",
    Cause.FRAME_WRAPPER: "the message has no field `wrapper.payload`, or no schema id for its payload",
    Cause.SCHEMA_UNKNOWN: "the registry did not know the schema id for longer than `schemas.patience_s`",
    Cause.SCHEMA_INVALID: "the schema does not compile, is not Protobuf or exceeds a cap",
    Cause.SCHEMA_INDEX: "the message index names no message of the writer's schema, or one unlike the payload",
    Cause.DECODE_PAYLOAD: "Google's Protobuf parser refuses the payload",
    Cause.DECODE_RANGE: "a timestamp is outside the years 1 to 9999",
    Cause.DECODE_TYPE: "the value cannot be converted to the column's type, or two columns would differ only by case",
    Cause.DECODE_CRASH: "decoding crashed each time this record was in the batch, at last with the record alone",
    Cause.ROUTE_MISSING: "the routing field is NULL, empty or missing in the message",
    Cause.ROUTE_NAME: "the routing value is not a valid table name",
    Cause.ROUTE_REFUSED: "the routing value is not in `tables.allowed`",
    Cause.ROUTE_COLLISION: "another routing value already has this table name",
    Cause.ROUTE_CAP: "the lake already has `tables.cap` silver tables",
}


@dataclass(frozen=True)
class FileEntry:
    """One Parquet file of a unit: its path is relative to the table's folder."""

    path: str
    rows: int
    size: int
    stats: str
    schema: str  # the file's columns as Delta's schema JSON

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> FileEntry:
        return FileEntry(**value)


Offsets = dict[str, dict[str, int]]  # topic -> partition -> offset


@dataclass(frozen=True)
class Span:
    """The records of one topic partition from `start` (included) to `end` (excluded)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """How many; not each has a record."""
        return self.end - self.start

    @property
    def partition_name(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass
class Report:
    """What one task of the pass found; `merge` adds up tasks.

    Counts are records. One that does not balance is refused by `Manifests.decide`, which looks at the files, too.
    """

    files: dict[str, list[FileEntry]] = field(default_factory=dict)  # table folder -> files
    bronze: int = 0
    silver: dict[str, int] = field(default_factory=dict)  # routing name -> rows
    quarantine: dict[str, int] = field(default_factory=dict)  # cause -> rows
    deferred: int = 0
    tombstones: int = 0
    schema_ids: dict[str, dict[str, int]] = field(default_factory=dict)  # routing name -> schema key -> rows
    spans: dict[str, list[int]] = field(default_factory=dict)  # "topic/partition" -> [first, last, records]
    new_ids: dict[str, int] = field(default_factory=dict)  # schema key -> records
    new_values: dict[str, dict[str, int]] = field(default_factory=dict)  # routing value -> message type -> records
    newest: int | None = None  # Kafka timestamp of the newest record, microseconds since 1970
    value_bytes: int = 0
    read: dict[str, list[list[int]]] = field(default_factory=dict)  # "topic/partition" -> [start, end] of each span

    def merge(self, other: Report) -> None:
        for table, files in other.files.items():
            self.files.setdefault(table, []).extend(files)
        for name in ("bronze", "deferred", "tombstones", "value_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("silver", "quarantine", "new_ids"):
            add_counts(getattr(self, name), getattr(other, name))
        for name in ("schema_ids", "new_values"):
            for key, counts in getattr(other, name).items():
                add_counts(getattr(self, name).setdefault(key, {}), counts)
        for key, (first, last, count) in other.spans.items():
            old = self.spans.get(key, [first, last, 0])
            self.spans[key] = [min(old[0], first), max(old[1], last), old[2] + count]
        for key, spans in other.read.items():
            self.read.setdefault(key, []).extend(spans)
        if other.newest is not None:
            self.newest = max(self.newest or 0, other.newest)

    def balance(self) -> tuple[int, int]:
        """(records taken, records placed): equal or the unit must not be decided."""
        placed = sum(self.silver.values()) + sum(self.quarantine.values()) + self.deferred + self.tombstones
        return self.bronze, placed

    def to_json(self) -> str:
        return json.dumps(self, default=vars)

    @staticmethod
    def from_json(text: str) -> Report:
        value = json.loads(text)
        files = {table: [FileEntry.from_json(f) for f in files] for table, files in value.pop("files").items()}
        return Report(files=files, **value)


def add_counts(into: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        into[key] = into.get(key, 0) + count


@dataclass(frozen=True)
class TableNames:
    """Names of the tables; `{name}` in a pattern is the routing name."""

    bronze: str = "bronze_events"
    silver: str = "silver_{name}_events"
    gold: str = "gold_{name}_player_agg"
    quarantine: str = "quarantine_events"
    deferred: str = "deferred_events"
    resolved: str = "resolved_events"
    lost: str = "lost_events"

    def is_silver(self, table: str) -> bool:
        """Whether a table is named as silver is."""
        return _made_by(self.silver, table)

    def is_gold(self, table: str) -> bool:
        """Whether a table is named as gold is."""
        return _made_by(self.gold, table)

    def name_of(self, table: str) -> str:
        """The routing name of a silver table."""
        before, after = self.silver.split("{name}")
        return table.removeprefix(before).removesuffix(after)

    def silver_of(self, name: str) -> str:
        return self.silver.format(name=name)

    def gold_of(self, name: str) -> str:
        return self.gold.format(name=name)


def _made_by(pattern: str, table: str) -> bool:
    before, after = pattern.split("{name}")
    return table.startswith(before) and table.endswith(after) and len(table) > len(before) + len(after)


Numbering = Literal["registered", "descriptor", "without_map_entries"]  # see `worker/decode/numbering`
Form = Literal["text", "descriptor"]  # as what the file whose messages an index names came from the registry


@dataclass(frozen=True)
class Decodable:
    """A schema that the pass can decode: its compiled files."""

    key: SchemaKey
    descriptor_set: bytes  # a serialized FileDescriptorSet, dependencies first, the writer's own file last
    digest: str  # of `descriptor_set`: the key of every cache of what is built from it
    form: Form | None = None  # None = a ledger of an earlier release does not say
    numbering: Numbering | None = None  # the lake's rule; None = a lake of an earlier release, which has none

    @property
    def counts_entries(self) -> bool | None:
        """Whether map entries count in a message index; None = it is not known."""
        if self.numbering == "registered":
            return None if self.form is None else self.form == "descriptor"
        return self.numbering != "without_map_entries"


@dataclass(frozen=True)
class DecodeOptions:
    """How payloads are read.

    Attributes:
        strict: the reference parser judges each record. Else only batches in which the fast decoder refuses one:
            faster, but what is slightly corrupt may land.
        defaults: a field without presence that is not on the wire lands as its default. Else as NULL, and so does one
            that was sent as its default: on the wire they are the same.
    """

    strict: bool = True
    defaults: bool = True


@dataclass(frozen=True)
class Catalog:
    """The closed set of schemas a pass works with; outside it a schema is new. Travels to the executors."""

    decodable: Mapping[SchemaKey, Decodable]
    refused: Mapping[SchemaKey, tuple[str, str]]  # -> (cause, detail)
    waiting: frozenset[SchemaKey]  # those that cannot be settled now
    columns: Mapping[str, pa.Schema]  # message type -> every column that a version of it ever had
    types: Mapping[tuple[SchemaKey, str], str] = field(default_factory=dict)  # (schema, full name) -> another type

    def type_of(self, key: SchemaKey, full_name: str) -> str:
        """The message type: the full name, with a number where schemas of that name contradict each other."""
        return self.types.get((key, full_name), full_name)


# The coordinates and the record itself, as the pass takes them in and bronze keeps them.
SOURCE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),  # JSON array of {key, value (base64)}, NULL when there are none
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.int32()),
    ]
)

# What stands for a value that was too large to be taken: its size, and its SHA-256 as hex digits. A batch or a table
# has these columns only once it has such a record; they are NULL for all others.
OMITTED_SCHEMA = pa.schema([("omitted_bytes", pa.int64()), ("omitted_sha256", pa.string())])

# What every silver row carries besides the fields of its message.
LINEAGE_SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_topic_id", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_kafka_timestamp", pa.timestamp("us", "UTC")),
        ("_schema_id", pa.int64()),
        ("_landed_at", pa.timestamp("us", "UTC")),
    ]
)

# Column names that no field of a message can have, whatever its case; some of them only certain tables have.
RESERVED = frozenset(LINEAGE_SCHEMA.names) | {"_key", "_wrapper", "_schema_guid"}
