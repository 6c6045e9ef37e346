"""A lake with records in quarantine: several causes, by official serializers, with texts that would be markup."""

from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry.serde import SchemaId

from tests.support.following import follow_events
from tests.support.frames import batch_of, frame, headers_of
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class

HOSTILE = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>{{ window.hurt=1 }}\u202e\0'
SCHEMA = compile_text(
    PROTO3
    + """
message Event {
  string game_name = 1; string gamer_id = 2; Player player = 3; int64 chips = 4; map<string, int64> counts = 5;
}
message Player { string name = 1; Player next = 2; }
message Other { bytes data = 1; }
"""
)
Event = message_class(SCHEMA, "Event")
RULES = {"small": {"check": "chips < 50", "action": "quarantine"}}


def event(game: str = "uno", chips: int = 1, name: str = HOSTILE) -> bytes:
    """The payload of an event."""
    made = Event(game_name=game, gamer_id="g", chips=chips, counts={name: 1})
    made.player.name = name
    return bytes(made.SerializeToString())


def values() -> list[bytes]:
    """One that lands, and then those that do not: see `CAUSES`."""
    return [
        frame(1, event()),
        frame(1, event(chips=60)),
        b"",
        b"\0\0",
        HOSTILE.encode(),
        frame(1, event())[:-3],
        frame(1, b"\x0a\x02\xff\xfe"),
        frame(1, event(), (7,)),
        frame(1, event(HOSTILE)),
        frame(1, b"")[:5] + b"\xff\xff",
        event(),
    ]


CAUSES = [
    "expect_failed",
    "frame_short",
    "frame_short",
    "frame_magic",
    "decode_payload",
    "decode_payload",
    "schema_index",
    "route_name",
    "frame_index",
    "frame_header",
]


def quarantine_lake(root: Path, **sections: Any) -> SmallLake:
    """The lake, with its events in their table."""
    lake = SmallLake(root, SCHEMA, **({"expectations": RULES} | sections))
    events = follow_events(lake.opened)
    sent = values()
    broken = SchemaId("PROTOBUF", schema_id=1).id_to_bytes()[:3]
    headers = [[(HOSTILE, HOSTILE.encode()), ("bytes", b"\xff\0")] for _ in sent[:-1]]
    given = headers_of([*headers, [("__value_schema_id", broken)]])
    lake.take(batch_of(sent, headers=given))
    events.call()
    return lake
