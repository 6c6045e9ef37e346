"""The pass on Spark, and what follows from what it met."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_app.lake.files.local import LocalStorage
from spark_app.model.errors import SchemaBump, last_message_line
from spark_app.model.offsets import ReadFailed, Span
from spark_app.model.reports import Report
from spark_app.units.driver import unit
from spark_app.units.driver.job_input import Gather, Records, Task
from spark_app.units.driver.reader import FROM_BRONZE, read_bronze
from tests.spark.parts import ORIGIN, TOPIC, Deadly, Given, Parts, Signed, Unread, events, source
from tests.support.answers import Answers
from tests.support.frames import batch_of

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c")]


def named(report: Report) -> list[str]:
    return sorted(f"{table}/{entry.path}" for table, files in report.files.items() for entry in files)


def rows_of(parts: Parts, table: str, report: Report) -> list[tuple[object, ...]]:
    """As the files of a unit hold them, without the time of landing."""
    found = pl.concat(pl.read_parquet(parts.lake.root / table / entry.path) for entry in report.files[table])
    return found.drop("landed_at", "_landed_at", strict=False).rows()


def test_new_tables_are_admitted_and_the_first_files_are_gone(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    report = parts.run(events(1, PLAYERS))
    assert report.silver == {"rummy": 2, "uno": 1}
    assert parts.tables.admitted == {"rummy": "rummy", "uno": "uno"}
    assert parts.files() == named(report)
    assert sorted(report.files) == ["bronze_events", "silver_rummy_events", "silver_uno_events"]
    parts.units.discard(report)
    assert parts.files() == []


def test_files_of_a_pass_into_another_folder_are_discarded_there(new_parts: NewParts, tmp_path: Path) -> None:
    parts, scratch = new_parts(), tmp_path / "scratch"
    parts.learn(1)
    origin = replace(ORIGIN, storage=LocalStorage(scratch))
    report = parts.run(events(1, PLAYERS), origin)
    assert parts.tables.admitted == {"rummy": "rummy", "uno": "uno"}  # so that there was a first pass
    assert sorted(str(path.relative_to(scratch)) for path in scratch.glob("*/*.parquet")) == named(report)
    parts.units.discard(report, origin.storage)
    assert list(scratch.glob("*/*.parquet")) == []
    (scratch / "silver_uno_events").rmdir()
    (scratch / "silver_uno_events").touch()  # a file where the task makes a folder
    with pytest.raises(PySparkException):
        parts.run(events(1, PLAYERS), origin)
    assert list(scratch.glob("*/*.parquet")) == []


@pytest.mark.parametrize(("scouted", "passes"), [(2, 2), (1, 3)], ids=["all is met", "some is met later"])
def test_some_of_a_first_batch_is_looked_at_first(
    new_parts: NewParts, monkeypatch: pytest.MonkeyPatch, scouted: int, passes: int
) -> None:
    monkeypatch.setattr(unit, "SAMPLE_RECORDS", scouted)
    parts = new_parts()
    parts.learn(1)
    execute, taken = parts.units._execute, []
    monkeypatch.setattr(parts.units, "_execute", lambda *given: taken.append(execute(*given)) or taken[-1])
    report = parts.run(events(1, PLAYERS))
    assert [run.bronze for run in taken] == [scouted, *[3] * (passes - 1)]
    assert (report.silver, parts.files()) == ({"rummy": 2, "uno": 1}, named(report))


def test_a_task_has_records_enough_to_be_worth_its_files(new_parts: NewParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores. A task writes a file per table that the records touch, which is known of the unit before."""
    monkeypatch.setattr(unit, "SMALL_ROWS", 10_000)
    parts = new_parts()
    parts.learn(1)
    assert [parts.units.tasks(records) for records in (20_000, 20_001, 10**9)] == [1, 2, 2]
    parts.run(events(1, PLAYERS))
    assert [parts.units.tasks(records) for records in (39_999, 40_000, 10**9)] == [1, 2, 2]
    parts.run(events(1, [*PLAYERS, ("chess", "d")]))
    assert [parts.units.tasks(records) for records in (59_999, 60_000, 10**9)] == [1, 2, 2]
    monkeypatch.setattr(unit, "GATHERED_TASKS", 2)
    monkeypatch.setattr(unit, "GATHERED_RECORDS", 25_000)
    assert [parts.units.tasks(records) for records in (49_999, 50_000, 10**9)] == [1, 2, 2]
    monkeypatch.setattr(unit, "GATHERED_TASKS", 3)
    assert [parts.units.tasks(records) for records in (59_999, 60_000, 10**9)] == [1, 2, 2]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks are enough for a second stage."""
    monkeypatch.setattr(unit, "GATHERED_TASKS", 2)


def test_small_tables_of_several_tasks_get_one_file_each(new_parts: NewParts, few: None) -> None:
    """It has the rows that one task would write, in their order."""
    games = [f"g{number}" for number in range(40)]
    values = events(1, [(game, f"{game}-{turn}") for turn in range(6) for game in games])
    parts = new_parts()
    parts.learn(1)
    parts.tables.admit({game: ["protolake.demo.GameEvent"] for game in games})
    taken = []
    for tasks, count, files in ((1, len(values), 1), (3, 0, 3), (3, len(values), 1)):
        parts.units._tables_per_unit = len(games)
        shares = tuple(
            Given(batch_of(values[at : at + len(values) // tasks], at, TOPIC))
            for at in range(0, len(values), len(values) // tasks)
        )
        report = parts.units.run(Records(parts.spark, shares, count), 1, ORIGIN)
        assert {len(report.files[f"silver_{game}_events"]) for game in games} == {files}
        assert report.balance() == (len(values), len(values))
        assert parts.files() == named(report)
        taken.append({table: rows_of(parts, table, report) for table in report.files})
        parts.units.discard(report)
    assert taken[0] == taken[1] == taken[2]


def test_a_read_that_fails_before_rows_are_gathered_fails_the_unit(new_parts: NewParts, few: None) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.tables.admit({"uno": ["protolake.demo.GameEvent"]})
    halves = (batch_of(events(1, [("uno", "a")]), at, TOPIC) for at in (0, 1))
    parts.units._tables_per_unit = 2
    with pytest.raises(ReadFailed, match="gone"):
        parts.units.run(Records(parts.spark, (Given(next(halves)), Unread(next(halves))), 2), 1, ORIGIN)
    assert parts.files() == []


def test_a_unit_whose_files_lack_rows_is_refused(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    report = parts.run(events(1, PLAYERS))
    with pytest.raises(PySparkException, match="3 rows for rummy were decoded, and 2 were written"):
        parts.units._check_rows(replace(report, silver=report.silver | {"rummy": 3}))


def test_no_rows_are_gathered_for_a_while_after_that_has_failed(
    new_parts: NewParts, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.tables.admit({"uno": ["protolake.demo.GameEvent"]})
    halves = tuple(Given(batch_of(events(1, [("uno", "a")]), at, TOPIC)) for at in (0, 1))
    run, gathering = Records.run, []

    def fill(self: Records, task: Task, gather: Gather, gatherers: int) -> Report:
        gathering.append(gatherers)
        if gatherers:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return run(self, task, gather, gatherers)

    monkeypatch.setattr(Records, "run", fill)
    with pytest.raises(OSError, match="No space left"):
        parts.units.run(Records(parts.spark, halves, 2), 1, ORIGIN)
    assert parts.units.run(Records(parts.spark, halves, 2), 1, ORIGIN).silver == {"uno": 2}
    assert parts.units.run(Records(parts.spark, halves, 2), 1, ORIGIN).silver == {"uno": 2}
    monkeypatch.setattr(unit, "APART_S", 0.0)
    parts.units._apart_until = 0.0
    with pytest.raises(OSError, match="No space left"):
        parts.units.run(Records(parts.spark, halves, 2), 1, ORIGIN)
    assert gathering == [1, 0, 0, 1]


def test_mixed_versions_of_a_batch_are_one_file_per_table_with_all_columns(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1, 3)
    values = [frame for pair in zip(events(1, PLAYERS), events(3, PLAYERS), strict=True) for frame in pair]
    report = parts.take(values)
    assert {table: len(files) for table, files in report.files.items()} == {
        "bronze_events": 1,
        "silver_rummy_events": 1,
        "silver_uno_events": 1,
    }
    rows = parts.read("silver_rummy_events").sort("_offset")
    assert rows["_offset"].to_list() == [0, 1, 4, 5]
    assert rows["_schema_id"].to_list() == [1, 3, 1, 3]
    assert rows["col_custom_2"].to_list() == [None, "b", None, "b"]
    assert rows["gamer_id"].to_list() == ["a", "a", "c", "c"]


def test_bump_leaves_no_file_and_no_table(new_parts: NewParts, answers: Answers) -> None:
    answers.schema(2, source(2))
    parts = new_parts(answers.url)
    answers["/schemas/ids/2/versions"] = (200, [{"subject": parts.settings.subject, "version": 2}])
    parts.learn(1)
    values = events(1, PLAYERS) + events(2, PLAYERS)
    with pytest.raises(SchemaBump, match=r"\[2\]"):
        parts.run(values)
    assert (parts.files(), parts.lake.tables(), parts.tables.admitted) == ([], [], {})
    again = new_parts(answers.url)
    assert again.take(values).silver == {"rummy": 4, "uno": 2}
    assert again.read("silver_uno_events")["col_custom_1"].to_list() == [None, "a"]


def test_a_schema_of_a_foreign_subject_is_settled_in_place(new_parts: NewParts, answers: Answers) -> None:
    """Whoever can write to the topic can name any id of the registry."""
    answers.schema(2, source(2))
    answers["/schemas/ids/2/versions"] = (200, [{"subject": "somebody-elses-value", "version": 1}])
    parts = new_parts(answers.url)
    parts.learn(1)
    report = parts.take(events(1, PLAYERS) + events(2, PLAYERS))
    assert report.silver == {"rummy": 4, "uno": 2}
    assert parts.read("silver_uno_events")["col_custom_1"].to_list() == [None, "a"]
    assert parts.ledger.versions() == {}


def test_settling_in_place_goes_on_to_the_tables_that_only_new_schemas_name(
    new_parts: NewParts, answers: Answers
) -> None:
    answers.schema(2, source(2))
    parts = new_parts(answers.url)
    parts.learn(1)
    values = events(1, PLAYERS) + events(2, [("poker", "d")]) + events(3, [("hearts", "e")])
    report = parts.take(values, replace(ORIGIN, bump_in_place=True))
    assert report.silver == {"rummy": 2, "uno": 1, "poker": 1}
    assert report.deferred == 1
    assert parts.files() == named(report)
    assert parts.read("deferred_events")["schema_id"].to_list() == [3]


def test_tables_over_the_cap_are_quarantined(new_parts: NewParts) -> None:
    parts = new_parts(tables={"max_tables": 2})
    parts.learn(1)
    report = parts.take(events(1, [*PLAYERS, ("poker", "d"), ("hearts", "e")]))
    assert sorted(parts.tables.admitted) == ["hearts", "poker"]
    assert report.quarantine == {"route_cap": 3}
    refused = parts.read("quarantine_events").sort("offset")
    assert refused.select("offset", "cause").rows() == [(offset, "route_cap") for offset in (0, 1, 2)]
    bronze = parts.read("bronze_events").filter(pl.col("offset") < 3).sort("offset")
    assert refused["value"].to_list() == bronze["value"].to_list()


def test_failing_pass_leaves_no_files(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.tables.admit({key: ["protolake.demo.GameEvent"] for key in ["rummy", "uno"]})
    parts.lake.path("silver_uno_events").touch()  # a file where the task makes a folder, after it wrote bronze
    with pytest.raises(PySparkException, match="silver_uno_events"):
        parts.run(events(1, PLAYERS))
    assert parts.lake.path("bronze_events").is_dir()
    assert parts.files() == []


def test_failing_pass_from_bronze_says_last_what_failed(spark: SparkSession, new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.tables.admit({key: ["protolake.demo.GameEvent"] for key in ["rummy", "uno"]})
    parts.take(events(1, PLAYERS), replace(ORIGIN, land_only=True))
    parts.lake.path("silver_uno_events").touch()
    with pytest.raises(PySparkException) as failed:
        parts.units.run(read_bronze(spark, parts.opened), 2, FROM_BRONZE)
    assert "silver_uno_events" in last_message_line(failed.value)


def test_shares_of_kafka_are_each_read_once_and_leave_no_claims(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    frames = events(1, [("uno", f"gamer {number}") for number in range(6)])
    spans = [Span(TOPIC, number, 0, 1) for number in range(len(frames))]
    shares = tuple(
        Given(batch_of([frame], 0, TOPIC, partition=span.partition), (span,))
        for frame, span in zip(frames, spans, strict=True)
    )
    report = parts.units.run(Records(parts.spark, shares), 1, ORIGIN)
    assert report.read == {span.partition_name: [[0, 1]] for span in spans}
    assert report.silver == {"uno": len(frames)}
    assert not list(Path(SparkFiles.getRootDirectory()).glob("claims-*"))


def test_single_tasks_in_a_row_have_one_process_that_other_jobs_do_not_get(new_parts: NewParts, tmp_path: Path) -> None:
    parts = new_parts()
    parts.learn(1)

    def processes(name: str, own: bool) -> set[str]:
        (tmp_path / name).mkdir()
        share = Signed(batch_of(events(1, PLAYERS), 0, TOPIC), folder=str(tmp_path / name))
        for _ in range(3):
            parts.units.run(Records(parts.spark, (share,), own_workers=own), 1, ORIGIN)
        return {path.name for path in (tmp_path / name).iterdir()}

    own, others, later = processes("own", True), processes("others", False), processes("later", True)
    assert len(own) == 1
    assert own == later
    assert not own & others


def test_worker_that_dies_fails_the_pass(spark: SparkSession, new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    with pytest.raises(PySparkException) as failed:
        parts.units.run(Records(spark, (Deadly(batch_of(events(1, PLAYERS), 0, "t")),)), 1, ORIGIN)
    assert "worker exited unexpectedly" in last_message_line(failed.value)


def test_temporary_space_stays_level_while_batches_bring_ids_that_nobody_knows(
    new_parts: NewParts, answers: Answers
) -> None:
    """A day of corrupt frames, shortened: each batch names 16 new ids, and those that wait are asked for again."""
    parts = new_parts(answers.url, schemas={"unknown_id_grace_s": 0.5})
    parts.learn(1)
    own = Path(parts.spark.sparkContext._temp_dir)
    folder = own.parents[1]  # of SPARK_LOCAL_DIRS: what the JVM keeps of its broadcasts is there, too
    frame, found, before = events(1, PLAYERS[:1])[0], [], len(list(own.iterdir()))  # other tests have left theirs
    for batch in range(24):
        ids = range(1000 + 16 * batch, 1016 + 16 * batch)
        report = parts.take([frame, *(b"\0" + schema_id.to_bytes(4) + frame[5:] for schema_id in ids)])
        late = sum(report.quarantine.values())  # on a busy machine the grace of some is over within the batch
        assert (report.silver, report.deferred + late) == ({"rummy": 1}, 16)
        parts.deferred.step(None)
        found.append([path.stat().st_size for path in folder.rglob("*") if path.is_file()])
    assert len(answers.asked) > 24 * 16
    assert len(list(own.iterdir())) == before + 1
    assert len(found[-1]) <= len(found[7]) + 2
    assert sum(found[-1]) < sum(found[7]) + 100_000  # the catalog itself grows by what is refused
