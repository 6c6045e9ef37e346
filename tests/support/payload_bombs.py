"""Payloads that are small on the wire and large, deep or slow for a careless decoder.

`python -m tests.support.payload_bombs NAME` puts one of them through a task, between good records, as each of two
messages: one that ptars reads, one that it does not. Prints as JSON its bytes, by how much the process grew and where
the records ended.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile

import pyarrow as pa

from spark_app.lake.files.local import LocalStorage
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.tables.route import Routing
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan
from tests.support.frames import batch_of, frame
from tests.support.protos import PROTO3, catalog_of, compile_text

FIELDS = """
  string game_name = 1; repeated Part parts = 3; repeated int32 numbers = 4; map<int32, int32> counts = 5;
  map<string, Part> named = 6; string text = 10; google.protobuf.Timestamp at = 11;
"""
SCHEMA = compile_text(
    PROTO3
    + "".join(f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "any", "struct"))
    + f"message Fast {{ {FIELDS} }} message Slow {{ {FIELDS} Slow child = 2; google.protobuf.Any any = 7;"
    + " google.protobuf.ListValue list = 8; } message Part { int32 a = 1; string b = 2; }"
)
GAME = b"\x0a\x01g"
GOOD = GAME
MEMORY = 6 << 30


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(number: int, depth: int, content: bytes = b"") -> bytes:
    for _ in range(depth):
        content = field(number, content)
    return content


def any_in_any(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        content = field(1, b"x/google.protobuf.Any") + field(2, content)
    return field(7, content)


def entries(keys: range, step: int = 1) -> bytes:
    return b"".join(field(5, b"\x08" + varint(key * step) + b"\x10\x01") for key in keys)


BOMBS = {
    "messages 101 deep": lambda: nested(2, 101),
    "messages 99 deep": lambda: nested(2, 99),
    "unknown messages 10,000 deep": lambda: nested(99, 10_000),
    "500,000 empty messages": lambda: b"\x1a\x00" * 500_000,
    "1,000,000 numbers, packed": lambda: field(4, b"\x01" * 1_000_000),
    "500,000 numbers, not packed": lambda: b"\x20\x01" * 500_000,
    "200,000 map entries": lambda: entries(range(200_000)),
    "200,000 times one map key": lambda: entries(range(200_000), step=0),
    "150,000 map entries without value": lambda: b"".join(field(6, field(1, b"%06d" % n)) for n in range(150_000)),
    "250,000 unknown groups": lambda: b"\xa3\x06\xa4\x06" * 250_000,
    "unknown groups 10,000 deep": lambda: b"\xa3\x06" * 10_000 + b"\xa4\x06" * 10_000,
    "a text of 1 MiB and 1 byte": lambda: field(10, b"x" * ((1 << 20) + 1)),
    "a length without end": lambda: b"\x52" + b"\xff" * 9 + b"\x01",
    "5,000 Any within each other": lambda: any_in_any(5_000),
    "250,000 values in a list": lambda: field(8, b"\x0a\x02\x08\x00" * 250_000),
}
# How many of the two messages Google's parser refuses; all others are rows. To one, a child is an unknown field.
REFUSED = {"messages 101 deep": 1, "unknown groups 10,000 deep": 2, "a length without end": 2}


def go(payload: bytes) -> Report:
    """The pass over the payload as both messages, between good records."""
    values = [frame(1, part, (message,)) for message in (0, 1) for part in (GOOD, payload, GOOD)]
    catalog = catalog_of(SCHEMA)
    messages = {"g": tuple(catalog.columns)}
    routing = Routing("game_name", {"g": "g"}, frozenset(), room=False, messages=messages)
    with tempfile.TemporaryDirectory() as folder:
        plan = TaskPlan(LocalStorage(folder), "part-0-a", TableNames(), routing, {}, 1, defer_new=True)
        return task.run(iter([batch_of(values)]), plan, catalog, "0")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(name: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    payload = GAME + BOMBS[name]()
    go(GOOD)
    before = peak()
    report = go(payload)
    pa.default_memory_pool().release_unused()
    found = {"bytes": len(payload), "grown": peak() - before, "silver": report.silver, "quarantine": report.quarantine}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
