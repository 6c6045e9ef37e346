"""The causes for which records are quarantined."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Cause(StrEnum):
    """Why a record is in quarantine. The first word is the hop (stage) that rejected it."""

    RECORD_SIZE = "record_size"
    FRAME_SHORT = "frame_short"
    FRAME_MAGIC = "frame_magic"
    FRAME_INDEX = "frame_index"
    FRAME_HEADER = "frame_header"
    FRAME_WRAPPER = "frame_wrapper"
    SCHEMA_UNKNOWN = "schema_unknown"
    SCHEMA_INVALID = "schema_invalid"
    SCHEMA_INDEX = "schema_index"
    SCHEMA_CHANGE = "schema_change"
    DECODE_PAYLOAD = "decode_payload"
    DECODE_WIRE = "decode_wire"
    DECODE_RANGE = "decode_range"
    DECODE_TYPE = "decode_type"
    DECODE_CRASH = "decode_crash"
    ROUTE_MISSING = "route_missing"
    ROUTE_NAME = "route_name"
    ROUTE_REFUSED = "route_refused"
    ROUTE_COLLISION = "route_collision"
    ROUTE_CAP = "route_cap"
    EXPECT_FAILED = "expect_failed"

    @property
    def hop(self) -> str:
        return self.value.split("_", 1)[0]


# For the audit, which derives every other cause from the bytes of the record:
NEVER_PROVEN = {Cause.SCHEMA_UNKNOWN, Cause.SCHEMA_INVALID, Cause.SCHEMA_CHANGE, Cause.DECODE_CRASH, Cause.DECODE_WIRE}
BY_TABLES = {Cause.ROUTE_REFUSED, Cause.ROUTE_COLLISION, Cause.ROUTE_CAP}

DROPPED = "dropped"  # what `resolved_events` has as the cause of a record that a rule had dropped

Reject = tuple[int, Cause, str]  # row of a batch, cause, detail

CAUSE_HELP: Mapping[Cause, str] = {
    Cause.RECORD_SIZE: "the value is larger than `batch.max_record_bytes`: only its size and SHA-256 are kept",
    Cause.FRAME_SHORT: "the value is shorter than a frame (magic byte, schema id or GUID, message index)",
    Cause.FRAME_MAGIC: "the first byte is neither 0 nor 1, and no schema is set for records without a frame",
    Cause.FRAME_INDEX: "the schema is Protobuf, but the message index is not a list of zig-zag varints",
    Cause.FRAME_HEADER: "the `__value_schema_id` header is not a schema id or GUID with a message index",
    Cause.FRAME_WRAPPER: "the message has no field `wrapper.payload`, or no schema id for its payload",
    Cause.SCHEMA_UNKNOWN: "the registry did not know the schema id for longer than `schemas.unknown_id_grace_s`",
    Cause.SCHEMA_INVALID: "the schema does not compile, is not Protobuf or exceeds a cap",
    Cause.SCHEMA_INDEX: "the message index names no message of the writer's schema, or one unlike the payload",
    Cause.SCHEMA_CHANGE: "the schema has a change with the policy `quarantine`, which the detail names",
    Cause.DECODE_PAYLOAD: "Google's Protobuf parser refuses the payload",
    Cause.DECODE_WIRE: "a field has another wire type than in the schema, and `decode.other_wire_types` is quarantine",
    Cause.DECODE_RANGE: "a timestamp is outside the years 1 to 9999",
    Cause.DECODE_TYPE: "the value cannot be converted to the column's type, or two columns would differ only by case",
    Cause.DECODE_CRASH: "decoding crashed each time this record was in the batch, at last with the record alone",
    Cause.ROUTE_MISSING: "the routing field is NULL, empty or missing in the message, or its kind cannot name tables",
    Cause.ROUTE_NAME: "the routing value is not a valid table name",
    Cause.ROUTE_REFUSED: "the routing value is not in `tables.allowlist`",
    Cause.ROUTE_COLLISION: "another routing value already has this table name",
    Cause.ROUTE_CAP: "the lake already has `tables.max_tables` silver tables",
    Cause.EXPECT_FAILED: "the row fails an expectation whose action is quarantine; the column `rules` names it",
}
