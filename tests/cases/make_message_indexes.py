"""Makes message_indexes.json: how each of Confluent's serializers numbers messages behind a map, and what the registry
then answers.

Run `python -m tests.cases.make_message_indexes > tests/cases/message_indexes.json` only to add a case. Python's bytes
are written by the serializer here, JavaScript's (@confluentinc/schemaregistry 1.10.1) were written once and are copied;
Java's serializer cannot be had, so its bytes are put together of the indexes that it was seen to write and Google's
payloads. The answers have the shape of those of Confluent's registry 8.2: text with the entries spelt out, or with
`map<>`; compiled, the first has its entries where they stand, the second behind all messages, as `itemsEntry`.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from tests.support.frames import frame
from tests.support.protos import PROTO3, compile_text, message_class

MESSAGES = """
  message Placed { string game_name = 1; string gamer_id = 2; int64 amount = 3; }
  message Cancelled { string game_name = 1; string gamer_id = 2; int64 amount = 3; string reason = 4; }
}
"""
MAPS = f"{PROTO3}package shop;\nmessage Order {{\n  map<string, int64> items = 1;{MESSAGES}"
SPELT_OUT = (
    f"{PROTO3}package shop;\nmessage Order {{\n  repeated ItemsEntry items = 1;\n"
    f"  message ItemsEntry {{ option map_entry = true; string key = 1; int64 value = 2; }}{MESSAGES}"
)
FIELDS = {"game_name": "uno", "gamer_id": "g1", "amount": 5}
SENT: dict[str, dict[str, Any]] = {"shop.Order.Placed": FIELDS, "shop.Order.Cancelled": FIELDS | {"reason": "late"}}
JAVA = {
    "Java": (SPELT_OUT, [0, 1], [0, 2]),
    "Java, normalize.schemas": (MAPS, [0, 0], [0, 1]),
    "Java, use.latest.version": (MAPS, [0, 0], [0, 1]),
}
JAVASCRIPT = {
    "shop.Order.Placed": "00000000010400000a03756e6f120267311805",
    "shop.Order.Cancelled": "00000000010400020a03756e6f12026731180522046c617465",
}


def make() -> list[dict[str, Any]]:
    order = compile_text(MAPS)
    kinds = {name: message_class(order, name) for name in SENT}
    made = [
        case(
            writer,
            text,
            {
                name: frame(1, kinds[name](**fields).SerializeToString(), index).hex()
                for (name, fields), index in zip(SENT.items(), indexes, strict=True)
            },
        )
        for writer, (text, *indexes) in JAVA.items()
    ]
    for writer, text, normalize in (("Python", SPELT_OUT, False), ("Python, normalize.schemas", MAPS, True)):
        client = SchemaRegistryClient.new_client({"url": "mock://"})
        conf = {"normalize.schemas": normalize}
        context = SerializationContext("t", MessageField.VALUE)
        values = {n: ProtobufSerializer(kinds[n], client, conf)(kinds[n](**f), context) for n, f in SENT.items()}
        made.append(case(writer, text, {name: value.hex() for name, value in values.items()}))
    return [*made, case("JavaScript", SPELT_OUT, JAVASCRIPT)]


def case(writer: str, text: str, values: dict[str, str]) -> dict[str, Any]:
    return {"writer": writer, "text": text, "serialized": serialized(text), "values": values}


def serialized(text: str) -> str:
    """As the registry compiles its text."""
    file = FileDescriptorProto(syntax="proto3", package="shop")
    order = file.message_type.add(name="Order")
    name = "itemsEntry" if text == MAPS else "ItemsEntry"
    field = order.field.add(name="items", number=1, type_name=name)
    field.label, field.type = field.LABEL_REPEATED, field.TYPE_MESSAGE
    entry = DescriptorProto(name=name)
    entry.options.map_entry = True
    _add_fields(entry, {"key": "string", "value": "int64"})
    events = [DescriptorProto(name="Placed"), DescriptorProto(name="Cancelled")]
    shared = {"game_name": "string", "gamer_id": "string", "amount": "int64"}
    _add_fields(events[0], shared)
    _add_fields(events[1], shared | {"reason": "string"})
    order.nested_type.extend([*events, entry] if text == MAPS else [entry, *events])
    return base64.b64encode(file.SerializeToString()).decode()


def _add_fields(message: DescriptorProto, kinds: dict[str, str]) -> None:
    for number, (name, kind) in enumerate(kinds.items(), 1):
        field = message.field.add(name=name, number=number)
        field.label = field.LABEL_OPTIONAL
        field.type = {"string": field.TYPE_STRING, "int64": field.TYPE_INT64}[kind]


if __name__ == "__main__":
    json.dump(make(), sys.stdout, indent=1, ensure_ascii=False)
    print()
