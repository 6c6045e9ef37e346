"""What Kafka no longer has: exact ranges for each way to lose them, and what accepting them does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.lake.delta.manifest import Manifest, Manifests
from spark_app.model.errors import ContractError
from spark_app.settings.models import Settings
from spark_app.sources.kafka.topics import Topic
from spark_app.units.driver import loss
from spark_app.units.driver.loss import Gap, Reason
from spark_app.units.driver.open_lake import OpenLake, UnitLog
from tests.chaos import read_back
from tests.chaos.units import ingest_unit, open_lake
from tests.support.checkpoints import write_checkpoint
from tests.unit.lake.test_redo import rows_of

TAKEN = Manifest(3, "ingest", {"start": {}, "end": {"t": {"0": 50, "1": 70}}, "topic_ids": {"t": "a"}}, {}, {})


def topic(first: list[int], end: list[int], topic_id: str = "a") -> dict[str, Topic]:
    bounds = [{str(p): offset for p, offset in enumerate(offsets)} for offsets in (first, end)]
    return {"t": Topic(topic_id, *bounds)}


@pytest.mark.parametrize(
    ("now", "gaps"),
    [
        (topic([0, 0], [50, 70]), []),
        (topic([50, 70], [90, 90]), []),
        (topic([50, 70, 0], [90, 90, 9]), []),
        (topic([51, 0], [90, 90]), [Gap("t", "a", 0, 50, 51, Reason.EXPIRED)]),
        (
            topic([60, 90], [60, 90]),
            [Gap("t", "a", 0, 50, 60, Reason.EXPIRED), Gap("t", "a", 1, 70, 90, Reason.EXPIRED)],
        ),
        (topic([0, 0, 4], [50, 70, 9]), [Gap("t", "a", 2, 0, 4, Reason.EXPIRED)]),
        (topic([0, 0], [50, 69]), [Gap("t", "a", 1, 69, 70, Reason.TRUNCATED)]),
        (topic([0], [50]), [Gap("t", "a", 1, 70, None, Reason.GONE)]),
        (
            topic([0, 0], [999, 999], "b"),
            [Gap("t", "a", 0, 50, None, Reason.MADE_AGAIN), Gap("t", "a", 1, 70, None, Reason.MADE_AGAIN)],
        ),
        (
            topic([3], [9], "b"),
            [
                Gap("t", "b", 0, 0, 3, Reason.EXPIRED),
                Gap("t", "a", 0, 50, None, Reason.MADE_AGAIN),
                Gap("t", "a", 1, 70, None, Reason.MADE_AGAIN),
            ],
        ),
    ],
)
def test_gaps_are_exact(now: dict[str, Topic], gaps: list[Gap]) -> None:
    assert loss.find_gaps(TAKEN, now) == gaps


def test_a_lake_that_took_nothing_and_a_new_topic_lack_nothing() -> None:
    assert loss.find_gaps(None, topic([5], [9])) == []
    assert loss.find_gaps(TAKEN, topic([0, 0], [50, 70]) | {"u": Topic("u", {"0": 5}, {"0": 9})}) == []


def test_a_log_that_ends_early_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just come up may not know its end yet."""
    monkeypatch.setattr(loss, "LOOK_EVERY_S", 0)
    answers = [topic([0, 0], [50, 69]), topic([0, 0], [50, 70])]

    class Asked:
        def look(self) -> dict[str, Topic]:
            return answers.pop(0)

    assert loss.find_gaps(TAKEN, loss.search(TAKEN, Asked())) == []  # type: ignore[arg-type]
    answers[:] = [topic([0, 0], [50, 69])] * loss.LOOKS
    assert [gap.reason for gap in loss.find_gaps(TAKEN, loss.search(TAKEN, Asked()))] == [Reason.TRUNCATED]  # type: ignore[arg-type]


def test_the_message_names_ranges_and_remedy() -> None:
    text = loss.describe(loss.find_gaps(TAKEN, topic([60, 0], [90, 90])))
    assert "t/0 50 to 60 (expired)" in text
    assert "--accept-loss" in text
    assert "--fresh" in loss.describe(loss.find_gaps(TAKEN, topic([0, 0], [9, 70])))


def taken_lake(tmp_path: Path) -> OpenLake:
    """Unit 1 took one record of partition 0."""
    lake = open_lake(tmp_path)
    opened = OpenLake.of(lake, Settings(lake={"path": str(tmp_path)}))  # type: ignore[arg-type]
    manifest = ingest_unit(lake, 1, rows_of(1))
    manifest.source["topic_ids"]["t"] = "a"
    opened.units.manifests.commit(manifest)
    opened.units.committer.apply(manifest)
    write_checkpoint(lake.path(lake.checkpoint), {"t": {"0": 0}}, [{"t": {"0": 1}}])
    return opened


def accept(opened: OpenLake, now: dict[str, Topic]) -> list[dict[str, object]]:
    loss.accept(opened, loss.find_gaps(opened.units.manifests.last_ingest, now), now)
    rows = read_back.read(opened.lake.root, "lost_events").to_pylist()
    assert all(row.pop("accepted_at") for row in rows)
    return rows


def test_accepting_writes_the_ranges_and_moves_the_end(tmp_path: Path) -> None:
    opened = taken_lake(tmp_path)
    row = {"topic": "t", "topic_id": "a", "partition": 0, "first": 1, "end": 6, "reason": "expired", "unit": 2}
    assert accept(opened, topic([6, 0], [9, 3])) == [row]
    assert loss.count(opened) == {"ranges": 1, "offsets": 5}
    assert not opened.lake.path(opened.lake.checkpoint).exists()
    last = Manifests(opened.lake).last_ingest
    assert last is not None
    assert (last.kind, last.source["start"], last.source["end"]) == (
        "loss",
        {"t": {"0": 1}},
        {"t": {"0": 6, "1": 0}},
    )
    assert loss.find_gaps(last, topic([6, 0], [9, 3])) == []
    assert OpenLake.of(opened.lake, opened.settings).units.redone_units == 0


def test_a_topic_made_again_begins_at_its_oldest_record(tmp_path: Path) -> None:
    opened = taken_lake(tmp_path)
    rows = accept(opened, topic([0, 2], [9, 3], "b"))
    assert [(r["topic_id"], r["partition"], r["first"], r["end"], r["reason"]) for r in rows] == [
        ("a", 0, 1, None, "made_again"),
        ("b", 1, 0, 2, "expired"),
    ]
    last = opened.units.manifests.last_ingest
    assert last is not None
    assert (last.source["end"], last.source["topic_ids"]) == ({"t": {"0": 0, "1": 2}}, {"t": "b"})


def test_without_gaps_nothing_is_decided(tmp_path: Path) -> None:
    opened = taken_lake(tmp_path)
    assert accept(opened, topic([0], [9])) == []
    assert opened.units.manifests.last == 1
    assert opened.lake.path(opened.lake.checkpoint).exists()


def test_what_would_get_its_offsets_anew_cannot_be_accepted(tmp_path: Path) -> None:
    opened = taken_lake(tmp_path)
    with pytest.raises(ContractError, match="--fresh"):
        accept(opened, topic([0], [0]))
    assert opened.units.manifests.last == 1


@pytest.mark.parametrize("stop", ["set_aside", "write"])
def test_a_crash_while_accepting_accepts_nothing(tmp_path: Path, stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = taken_lake(tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    target: type = {"set_aside": type(opened.lake), "write": UnitLog}[stop]
    real: Callable[..., object] = getattr(target, stop)
    monkeypatch.setattr(target, stop, lambda *a, **k: (real(*a, **k), crash())[0])
    with pytest.raises(KeyboardInterrupt):
        accept(opened, topic([6], [9]))
    monkeypatch.undo()
    again = OpenLake.of(opened.lake, opened.settings)
    assert again.units.manifests.last == 1
    assert len(loss.find_gaps(again.units.manifests.last_ingest, topic([6], [9]))) == 1
    assert again.lake.files_from(2) == {}
