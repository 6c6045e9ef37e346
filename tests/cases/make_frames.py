"""Makes frames.json: record values by Confluent's own ProtobufSerializer, to be read for ever.

Run `python -m tests.cases.make_frames > tests/cases/frames.json` only to add a case: the bytes that are there are what
producers have written, so a change of an old one is a failure, not an update. The schemas are registered with the
mock registry that the client brings; it numbers them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from tests.support.protos import PROTO3, compile_text, message_class

EVENT = (
    PROTO3
    + """package protolake.demo;
import "google/protobuf/timestamp.proto";
message GameEvent {
  string game_name = 1; string gamer_id = 2; google.protobuf.Timestamp event_timestamp = 3; string device_id = 4;
  optional string col_custom_1 = 5;
}
"""
)
NESTED = (
    PROTO3
    + "message A { int32 a = 1; } message B { message C { message D { string d = 1; } } message E { bool e = 1; } }"
)
MOMENT = "2026-01-02T03:04:05.678901Z"
IN_HEADER = "in header"  # the GUID of the schema in a record header, the payload bare
CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("event", EVENT, "protolake.demo.GameEvent", {"game_name": "rummy", "gamer_id": "g", "event_timestamp": MOMENT}),
    ("event with optional", EVENT, "protolake.demo.GameEvent", {"game_name": "uno", "col_custom_1": ""}),
    ("empty payload", EVENT, "protolake.demo.GameEvent", {}),
    ("first message", NESTED, "A", {"a": -1}),
    ("nested message", NESTED, "B.C.D", {"d": "é"}),
    ("second nested message", NESTED, "B.E", {"e": True}),
    (f"event {IN_HEADER}", EVENT, "protolake.demo.GameEvent", {"game_name": "rummy"}),
    (f"nested message {IN_HEADER}", NESTED, "B.C.D", {"d": "é"}),
]


def make() -> list[dict[str, Any]]:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    made = []
    for name, text, message_name, fields in CASES:
        kind = message_class(compile_text(text), message_name)
        conf = {"schema.id.serializer": header_schema_id_serializer} if IN_HEADER in name else {}
        serializer = ProtobufSerializer(kind, client, conf)
        message = json_format.ParseDict(fields, kind())
        headers: list[tuple[str, bytes]] = []
        value = serializer(message, SerializationContext(name.replace(" ", "_"), MessageField.VALUE, headers))
        case = {"name": name, "schema": text, "message": message_name, "fields": fields, "value": value.hex()}
        made.append(case | {"headers": [(name, data.hex()) for name, data in headers]})
    return made


if __name__ == "__main__":
    json.dump(make(), sys.stdout, indent=1, ensure_ascii=False)
    print()
