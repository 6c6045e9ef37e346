"""Corrupts records on purpose. Input: a frame of the official serializer. Output: a frame that must not reach silver.

A fault either edits the message before it is framed (its content is wrong) or changes the frame afterwards (its bytes
are wrong). `FAULTS` is the table of all kinds; `python -m producer faults` prints it. `hop` is where a reader must
reject it: `frame` (magic byte, schema id), `index` (message index), `payload` (Protobuf bytes), `content` (the event's
values).
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf.message import Message

Edit = Callable[[Message], None]
Mutation = Callable[[bytes, Random], bytes | None]

_HEADER = 5  # magic byte and schema id
_START = 6  # after the header and the one-byte message index of the first message


@dataclass(frozen=True)
class Fault:
    """One kind of bad record: where a reader must detect it, what is wrong, and how it is made."""

    hop: str
    meaning: str
    edit: Edit | None = None
    mutate: Mutation | None = None


def draw_fault(random: Random, share: float, kinds: tuple[str, ...]) -> str | None:
    """The kind of fault of the next record; None for a good one. The number of draws does not depend on the record."""
    if share <= 0:
        return None
    spoil, kind = random.random() < share, random.choice(kinds)
    return kind if spoil else None


def _name_game(name: str) -> Edit:
    return lambda message: setattr(message, "game_name", name)


def _overflow_timestamp(message: Any) -> None:
    message.event_timestamp.seconds = 1 << 60


def _unknown_id(frame: bytes, random: Random) -> bytes:
    # Sixteen ids far above any of a registry: corrupt, but without a new lookup for every record.
    return frame[:1] + (0x7FFFFF00 + random.randrange(16)).to_bytes(4, "big") + frame[_HEADER:]


def _unknown_guid(frame: bytes, random: Random) -> bytes:
    return b"\x01" + bytes(15) + bytes([random.randrange(16)]) + frame[_HEADER:]


def _put_index(index: bytes) -> Mutation:
    return lambda frame, random: frame[:_HEADER] + index + frame[_START:]


def _put_payload(payload: bytes) -> Mutation:
    return lambda frame, random: frame[:_START] + payload


def _random_payload(frame: bytes, random: Random) -> bytes:
    # 0x07 is field number 0 with wire type 7, which is never valid, whatever bytes follow.
    return frame[:_START] + b"\x07" + random.randbytes(random.randint(8, 64))


FAULTS: dict[str, Fault] = {
    "tombstone": Fault("frame", "null value", mutate=lambda frame, random: None),
    "empty_value": Fault("frame", "zero bytes", mutate=lambda frame, random: b""),
    "wrong_magic": Fault("frame", "magic byte 0x7b, like JSON", mutate=lambda frame, random: b"\x7b" + frame[1:]),
    "short_header": Fault(
        "frame", "ends inside the schema id", mutate=lambda frame, random: frame[: random.randint(1, 4)]
    ),
    "unknown_schema_id": Fault("frame", "schema id that no registry has", mutate=_unknown_id),
    "unknown_guid": Fault("frame", "magic byte 1 and a GUID that no registry has", mutate=_unknown_guid),
    "missing_index": Fault("index", "ends after the schema id", mutate=lambda frame, random: frame[:_HEADER]),
    "index_out_of_range": Fault("index", "message 100 of a file that has one", mutate=_put_index(b"\x02\xc8\x01")),
    "index_negative": Fault("index", "message -1", mutate=_put_index(b"\x02\x01")),
    "index_count_huge": Fault("index", "claims 2^31 - 1 indexes", mutate=_put_index(b"\xfe\xff\xff\xff\x0f")),
    "index_garbage": Fault("index", "varint that never ends", mutate=_put_index(b"\xff" * 16)),
    "truncated_payload": Fault("payload", "last byte missing", mutate=lambda frame, random: frame[:-1]),
    "invalid_utf8": Fault("payload", "0xff inside the last string", mutate=lambda frame, random: frame[:-1] + b"\xff"),
    "random_payload": Fault("payload", "random bytes", mutate=_random_payload),
    "open_group": Fault("payload", "group that is not closed", mutate=lambda frame, random: frame + b"\x0b"),
    "huge_length": Fault("payload", "string of 2^31 - 1 bytes", mutate=_put_payload(b"\x0a\xff\xff\xff\xff\x07rummy")),
    "wrong_wire_type": Fault(
        "content",
        "game_name as a number: parses, but has no game",
        edit=_name_game(""),
        mutate=lambda frame, random: frame[:_START] + b"\x08\x05" + frame[_START:],
    ),
    "no_payload": Fault("content", "empty message: parses, but has no fields", mutate=_put_payload(b"")),
    "timestamp_overflow": Fault("content", "seconds beyond the year 9999", edit=_overflow_timestamp),
    "game_empty": Fault("content", "game_name is empty", edit=_name_game("")),
    "game_traversal": Fault("content", "game_name is a path outside the lake", edit=_name_game("../../etc/lake")),
    "game_absolute": Fault("content", "game_name is an absolute path", edit=_name_game("/tmp/lake")),
    "game_dots": Fault("content", "game_name is the parent folder", edit=_name_game("..")),
    "game_escaped": Fault("content", "game_name with an escaped path", edit=_name_game("%2e%2e%2frummy")),
    "game_colon": Fault("content", "game_name breaks globs", edit=_name_game("rummy:1")),
    "game_long": Fault("content", "game_name of 5,000 letters", edit=_name_game("rummy" * 1000)),
    "game_nul": Fault("content", "game_name with a NUL", edit=_name_game("rum\0my")),
    "game_newline": Fault("content", "game_name with a line break", edit=_name_game("rummy\nlevel=ERROR")),
    "game_quote": Fault("content", "game_name with SQL", edit=_name_game("rummy`; DROP TABLE x; --")),
    "game_lookalike": Fault("content", "game_name with Cyrillic letters", edit=_name_game("r\u0443mm\u0443")),
    "game_bidi": Fault("content", "game_name that reads backwards", edit=_name_game("\u202eymmur")),
}
