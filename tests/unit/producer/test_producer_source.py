"""The records of a run: reproducible, of the right versions, and spoiled exactly as the table of faults says.

Frames come from the official serializer against the client library's own in-memory registry; no network.
"""

import struct
import uuid
from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf.message import DecodeError

from producer.clock import SystemClock
from producer.faults import FAULTS, draw_fault
from producer.games import make_events
from producer.plants import PLANTS
from producer.schemas import PROTO_FOLDER, available_versions, compile_version
from tests.support.frames import frame
from tests.support.producing import NEWEST, Lab

CONTEXT = SerializationContext("protobuf_game_stream", MessageField.VALUE)
EVENT = next(make_events(7, ("rummy",), 10, NEWEST - 1))


def read_officially(value: bytes, version: int) -> Any:
    conf = {"use.deprecated.format": False, "subject.name.strategy.type": "TOPIC"}
    return ProtobufDeserializer(compile_version(version).message, conf)(value, CONTEXT)


def test_the_same_seed_makes_the_same_bytes() -> None:
    arguments = ("--poison", "0.2", "--num-versions", "3", "--schema-version", "4", "--timeline", "uno=5@3s")
    assert Lab(*arguments).take(3000) == Lab(*arguments).take(3000)
    assert Lab(*arguments).take(50) != Lab(*arguments, "--seed", "8").take(50)


def test_events_do_not_depend_on_versions_or_poison() -> None:
    plain = [read_officially(value, 1) for value, _ in Lab().take(500) if value]
    mixed = Lab("--schema-version", "5", "--num-versions", "5", "--poison", "0.3").take(500)
    for event, (value, label) in zip(plain, mixed, strict=True):
        if label["poison"] is None and value:
            other = read_officially(value, label["version"])
            assert (other.gamer_id, other.device_id, other.event_timestamp.ToJsonString()) == (
                event.gamer_id,
                event.device_id,
                event.event_timestamp.ToJsonString(),
            )


def test_a_frame_holds_the_event_that_was_made() -> None:
    lab = Lab("--schema-version", "3")
    event = next(lab.events)
    value, label = lab.source.make(0, event)
    assert value is not None
    message = read_officially(value, 3)
    assert (message.game_name, message.gamer_id, message.device_id) == event[:3]
    assert label == {"game": event.game, "poison": None, "planted": None, "version": 3}
    assert message.event_timestamp.ToMicroseconds() == 1767225600_000_000 - event.age_us
    for name, detail in zip(("col_custom_1", "col_custom_2"), event.details, strict=False):
        assert (getattr(message, name) if message.HasField(name) else None) == detail


def test_gamers_are_distinct_and_the_games_all_played() -> None:
    events = list(islice(make_events(7, ("rummy", "uno"), 5000, 4), 20_000))
    assert {event.game for event in events} == {"rummy", "uno"}
    assert 2000 < len({event.gamer_id for event in events}) <= 5000
    assert any(None in event.details for event in events)
    assert any(None not in event.details for event in events)
    assert len({event.gamer_id for event in islice(make_events(7, ("rummy",), 3, 0), 500)}) == 3


def test_the_newest_versions_are_mixed_about_evenly() -> None:
    counts = Counter(label["version"] for _, label in Lab("--schema-version", "3", "--num-versions", "2").take(2000))
    assert set(counts) == {2, 3}
    assert min(counts.values()) > 800


def test_the_registry_numbers_versions_as_their_folders_do() -> None:
    lab = Lab("--schema-version", "3")
    ((_, label),) = lab.take(1)
    assert (label["version"], lab.registered()) == (3, [1, 2, 3])
    form = compile_version(3).registry_form
    assert lab.subject.client.lookup_schema(lab.subject.name, form).version == 3


def test_a_subject_that_left_versions_out_is_not_given_them_later() -> None:
    lab = Lab("--schema-version", "3")
    for number in (1, 3):  # as producers of earlier releases did
        lab.subject.register(compile_version(number), 1)
    lab.take(1)
    assert lab.registered() == [1, 2]


def test_the_text_with_its_comments_is_registered() -> None:
    lab = Lab("--schema-version", "1")
    lab.take(1)
    found = lab.subject.client.get_version(lab.subject.name, 1).schema.schema_str
    assert found == (PROTO_FOLDER / "v1" / "game_event.proto").read_text()
    assert "// Who played." in found


def test_a_version_that_an_earlier_release_registered_as_a_descriptor_is_no_new_one() -> None:
    lab = Lab("--schema-version", "2")
    for number in (1, 2):
        lab.subject.client.register_schema(lab.subject.name, compile_version(number).descriptor_form)
    ((value, label),) = lab.take(1)
    assert (label["version"], lab.registered()) == (2, [1, 2])
    assert value is not None
    assert read_officially(value, 2).game_name


def test_a_version_is_registered_when_it_is_first_sent() -> None:
    lab = Lab("--timeline", "rummy=3@100r")
    lab.take(100)
    assert lab.registered() == [1]
    after = lab.take(200)
    assert lab.registered() == [1, 2, 3]
    assert {(label["game"], label["version"]) for _, label in after if label["game"] in ("rummy", "uno")} == {
        ("rummy", 3),
        ("uno", 1),
    }


def test_each_proto_folder_adds_one_optional_column() -> None:
    assert available_versions(PROTO_FOLDER) == [1, 2, 3, 4, 5]
    for number in range(1, 6):
        fields = [(field.name, field.number) for field in compile_version(number).message.DESCRIPTOR.fields]
        assert fields[4:] == [(f"col_custom_{k}", 4 + k) for k in range(1, number)]


def test_system_clock_is_now() -> None:
    clock = SystemClock()
    assert clock.now_us(0) > 1_700_000_000_000_000
    assert 0 <= clock.elapsed(10**9) < 60


def spoil(kind: str) -> tuple[bytes | None, bytes]:
    """The bad record and the good one that it was made from."""
    bad = Lab("--poison", "1", "--poison-kinds", kind).source.make(0, EVENT)[0]
    good = Lab().source.make(0, EVENT)[0]
    assert good is not None
    return bad, good


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_what_it_says(kind: str) -> None:
    hop = FAULTS[kind].hop
    bad, good = spoil(kind)
    assert bad != good
    if bad is None:
        assert kind == "tombstone"
    elif kind == "unknown_guid":
        assert bad == frame(str(uuid.UUID(int=bad[16])), good[6:])
    elif hop == "frame" and kind != "unknown_schema_id":
        assert len(bad) < 5 or bad[0] != 0
    elif kind == "unknown_schema_id":
        assert (bad[0], bad[5:]) == (0, good[5:])
        assert int.from_bytes(bad[1:5], "big") > 2**30
    elif hop == "index":
        assert bad[:5] == good[:5]
        assert bad[5:6] != b"\x00"
    elif hop == "payload":
        assert bad[:6] == good[:6]
        with pytest.raises(DecodeError):
            compile_version(1).message.FromString(bad[6:])
    else:
        judge_content(kind, read_officially(bad, 1))


def judge_content(kind: str, event: Any) -> None:
    """Such a record parses; what it says must not be believed."""
    if kind == "timestamp_overflow":
        with pytest.raises(ValueError, match="Timestamp"):
            event.event_timestamp.ToJsonString()
        return
    name = event.game_name
    assert not (name.isascii() and name.isidentifier() and len(name) <= 64), name


@pytest.mark.parametrize(
    "kind", ["empty_value", "wrong_magic", "short_header", "truncated_payload", "invalid_utf8", "random_payload"]
)
def test_the_official_deserializer_refuses(kind: str) -> None:
    bad, good = spoil(kind)
    assert bad is not None
    assert read_officially(good, 1).game_name
    with pytest.raises((SerializationError, DecodeError, struct.error)):
        read_officially(bad, 1)


def test_the_share_of_poison_is_kept_and_every_kind_comes() -> None:
    random = Random(1)
    drawn = [draw_fault(random, 0.2, tuple(FAULTS)) for _ in range(10_000)]
    assert 1800 < sum(kind is not None for kind in drawn) < 2200
    assert set(drawn) == {None, *FAULTS}
    assert draw_fault(random, 0.0, tuple(FAULTS)) is None


def value_of(kind: str, message: Any) -> Any:
    """The value that a kind of rule failure changes, and whether it is wrong."""
    if kind == "future_time":
        return message.event_timestamp.ToSeconds(), message.event_timestamp.ToSeconds() > 1767225600 + 86_400
    if kind == "late_time":
        return message.event_timestamp.ToSeconds(), message.event_timestamp.ToSeconds() < 1767225600 - 86_000
    if kind == "no_player":
        return message.gamer_id, message.gamer_id == ""
    return message.device_id, message.device_id == "" if kind == "no_device" else message.device_id[:5] == "test-"


@pytest.mark.parametrize("version", [1, NEWEST])
@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_record_differs_in_the_named_value_alone(kind: str, version: int) -> None:
    event = next(make_events(7, ("rummy",), 10, NEWEST - 1))
    good, _ = Lab("--schema-version", str(version)).source.make(0, event)
    planted, label = Lab("--schema-version", str(version), "--plant", f"{kind}=1").source.make(0, event)
    assert good is not None
    assert planted is not None
    assert label == {"game": "rummy", "poison": None, "planted": kind, "version": version}
    before, after = read_officially(good, version), read_officially(planted, version)
    assert (value_of(kind, before)[1], value_of(kind, after)[1]) == (False, True)
    names = [field.name for field in before.DESCRIPTOR.fields]
    changed = [name for name in names if str(getattr(before, name)) != str(getattr(after, name))]
    fields = {"no_player": "gamer_id", "future_time": "event_timestamp", "late_time": "event_timestamp"}
    assert changed == [fields.get(kind, "device_id")]


def test_planting_changes_no_other_record() -> None:
    poisoned = ("--poison", "0.1", "--schema-version", "5", "--num-versions", "3")
    plain = Lab(*poisoned).take(2_000)
    planted = Lab(*poisoned, "--plant", "no_player=0.1,future_time=0.1").take(2_000)
    kinds = Counter(label["planted"] for _, label in planted)
    assert set(kinds) == {None, "no_player", "future_time"}
    assert min(kinds.values()) > 100
    for before, after in zip(plain, planted, strict=True):
        assert before[1] == after[1] | {"planted": None}
        assert (before[0] == after[0]) is (after[1]["planted"] is None)
        assert not (after[1]["planted"] and after[1]["poison"])
