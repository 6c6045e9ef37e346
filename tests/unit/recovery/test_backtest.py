"""A backtest counts what the rules of the settings would do to the rows of history, and leaves the lake as it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_app.app.text import outcome_lines
from spark_app.model.definitions import NO_DEFINITIONS
from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError, UsageError
from spark_app.model.reports import Report
from spark_app.recovery.backtest import backtest, history, kept_out
from spark_app.recovery.backtest.outcomes import Outcomes
from spark_app.recovery.backtest.scan import BATCH_BYTES, BATCH_RECORDS, scan
from spark_app.settings.models import ExpectationSettings, Settings
from spark_app.units.driver.unit import UnitOptions
from spark_app.units.worker.table_rows import resolved_rows
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake, Taken
from tests.support.protos import PROTO3, compile_text, message_class
from tests.unit.tables.test_expectations import BETS, LATER, bet, lake_of

UNO, HEARTS = "silver_uno_events", "silver_hearts_events"
IN_FORCE = {
    "known": {"check": "gamer_id <> ''", "action": "quarantine"},
    "positive": {"check": "bet > 0", "action": "drop"},
}
Sent = dict[str, Any]  # game, gamer, amount, level, limit; the version with `limit` if it has one


def value_of(sent: Sent) -> bytes:
    given = {} if "limit" not in sent else {"decodable": LATER, "limit": sent["limit"]}
    return bet(sent["game"], sent["gamer"], sent["amount"], sent["level"], **given)


def with_rules(lake: SmallLake, **checks: str | tuple[str, ...]) -> Settings:
    """The settings of the lake with other rules: name -> check, or (check, tables ...)."""
    rules = {}
    for name, given in checks.items():
        check, *tables = (given,) if isinstance(given, str) else given
        rules[name] = ExpectationSettings(check=check, action="quarantine", tables=tuple(tables))
    return lake.settings.model_copy(update={"expectations": rules})


def counts(outcomes: Outcomes, rule: str) -> dict[str, tuple[int, int, int]]:
    """Table -> rows of silver, rows from bronze, failed."""
    return {
        t: (o.silver, o.bronze, o.expectations[rule].failed)
        for t, o in outcomes.tables.items()
        if rule in o.expectations
    }


def digests(root: Path) -> dict[str, str]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def sent_rows() -> list[list[Sent]]:
    """Three batches of rows of two games and two versions, some of which are bad in each way."""
    found = []
    for number in range(600):
        row: Sent = {"game": "uno" if number % 3 else "hearts", "gamer": f"g{number % 50}" if number % 11 else ""}
        row |= {"amount": None if number % 13 == 0 else number % 17 - 1, "level": "x" if number % 19 == 0 else "5"}
        found.append(row | ({"limit": number % 7} if number % 5 == 0 else {}))
    return [found[:100], found[100:350], found[350:]]


TRIED: dict[str, tuple[str, Callable[[Sent], bool]]] = {
    "known": ("gamer_id <> ''", lambda row: row["gamer"] != ""),
    "small": ("Bet < 9", lambda row: row["amount"] is not None and row["amount"] < 9),
    "number": ("CAST(level AS INTEGER) = 5", lambda row: row["level"] == "5"),
    "limit": (
        '"limit" IS NULL OR bet <= "limit"',
        lambda row: "limit" not in row or (row["amount"] is not None and row["amount"] <= row["limit"]),
    ),
    "place": ("_topic = 't' AND _partition < 2 AND _offset % 10 <> 3", lambda row: row["offset"] % 10 != 3),
}


def test_counts_are_those_of_plain_python(tmp_path: Path) -> None:
    lake, rows = lake_of(tmp_path, IN_FORCE), []
    offsets = {0: 0, 1: 0}
    for number, batch in enumerate(sent_rows()):
        partition, first = number % 2, offsets[number % 2]
        lake.take(batch_of([value_of(row) for row in batch], first=first, partition=partition))
        offsets[partition] += len(batch)
        rows += [row | {"offset": first + i, "partition": partition} for i, row in enumerate(batch)]
    outcomes = backtest(with_rules(lake, **{name: check for name, (check, _) in TRIED.items()}))
    assert (outcomes.undecodable, outcomes.idle) == ({}, [])
    for game, table in (("hearts", HEARTS), ("uno", UNO)):
        own = [row for row in rows if row["game"] == game]
        out = [row for row in own if row["gamer"] == "" or row["amount"] is None or row["amount"] <= 0]
        found = outcomes.tables[table]
        assert (found.silver, found.bronze) == (len(own) - len(out), len(out))
        assert min(len(out), found.silver) > 20
        for name, (_, passes) in TRIED.items():
            failing = {("t", row["partition"], row["offset"]) for row in own if not passes(row)}
            assert found.expectations[name].failed == len(failing) > 0, name
            named = found.expectations[name].rows
            assert (len(set(named)), set(named) <= failing) == (min(5, len(failing)), True), name


def test_the_first_failing_rows_of_silver_are_named(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {})
    lake.take(batch_of([bet("uno", "a", number % 2) for number in range(8)]))
    lake.take(batch_of([bet("uno", "a", 0) for _ in range(3)], first=8))
    [rule] = backtest(with_rules(lake, one="bet = 1")).tables[UNO].expectations.values()
    assert (rule.failed, rule.rows) == (7, [("t", 0, offset) for offset in (0, 2, 4, 6, 8)])


def test_rows_of_each_definition_are_checked(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"low": {"check": "bet < 5", "action": "warn"}})
    lake.take(batch_of([bet("uno", "a", 9), bet("uno", "a", 1)]))
    lake.opened.expectations.of_settings = NO_DEFINITIONS
    lake.take(batch_of([bet("uno", "a", 9)], first=2))
    assert counts(backtest(lake.settings), "low") == {UNO: (3, 0, 2)}


def test_only_the_named_expectations_and_the_tables_of_an_expectation_are_checked(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {})
    lake.take(batch_of([bet("uno", "a", 9), bet("hearts", "a", 1)]))
    settings = with_rules(lake, a="bet > 5", b=("bet > 5", "hearts", "chess"), c=("bet > 5", "chess"), bad="nosuch > 5")
    outcomes = backtest(settings, ["b", "c"])
    assert {table: list(found.expectations) for table, found in outcomes.tables.items()} == {HEARTS: ["b"]}
    assert (counts(outcomes, "b"), outcomes.idle) == ({HEARTS: (1, 0, 1)}, ["c"])


def replay(lake: SmallLake, first: int, finish: bool = True) -> None:
    """A unit of a replay that adds the kept-out record at the offset to silver, written by the app's own code."""
    settings, opened = lake.settings, lake.opened
    batch = pa.Table.from_pylist([r for r in table_of(lake, "bronze_events") if r["offset"] == first]).to_batches()[0]
    columns = {f.name: f.type for f in DeltaTable(str(lake.lake.path("bronze_events"))).to_pyarrow_table().schema}
    batch = pa.RecordBatch.from_arrays([batch[n].cast(t) for n, t in columns.items()], names=list(columns))
    lake.opened.expectations.of_settings = NO_DEFINITIONS
    report = lake.units.run(Taken([batch]), 2, UnitOptions({}, write_bronze=False, bump_in_place=True))  # type: ignore[arg-type]
    placed = pa.table({n: batch[n] for n in ("topic", "topic_id", "partition", "offset", "schema_id")})
    placed = placed.append_column("cause", pa.array(["dropped"])).append_column("table", pa.array([UNO]))
    entry_of = opened.units.write(settings.tables.resolved, resolved_rows(placed, 2, 0))
    files = {**report.files, settings.tables.resolved: [entry_of]}
    source = {"request": "one", "records": 1, "progress": {}}
    unit = Report(files=files, bronze=1, silver=report.silver, schema_ids=report.schema_ids)
    opened.commit(unit, "replay", source)
    if not finish:  # as a crash before the last table leaves it
        lake.lake.storage.replace(f"{lake.lake.manifests}/finished", b"1")


def table_of(lake: SmallLake, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(lake.lake.path(name))).to_pyarrow_table().to_pylist()
    return rows


FOUR = [bet("uno", "a", 5), bet("uno", "", 5), bet("uno", "b", 0), bet("uno", "", 0)]  # 1 and 3 quarantined, 2 dropped


def test_a_replayed_record_counts_once(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    assert counts(backtest(lake.settings), "positive") == {UNO: (1, 3, 2)}
    replay(lake, 2)
    assert counts(backtest(lake.settings), "positive") == {UNO: (2, 2, 2)}
    replay(lake, 1)
    assert counts(backtest(lake.settings), "known") == {UNO: (3, 1, 2)}


def test_a_replay_that_is_half_done_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    replay(lake, 2, finish=False)
    with pytest.raises(UnreachableError, match="run it again after the replay"):
        history.History.of(lake.settings, 0.0)
    waits = []

    def finish(seconds: float) -> None:
        waits.append(seconds)
        lake.opened.units.manifests.mark_applied(2)

    monkeypatch.setattr("spark_app.recovery.backtest.history.time.sleep", finish)
    assert counts(backtest(lake.settings), "positive") == {UNO: (2, 2, 2)}
    assert waits == [history.RETRY_S]


def test_other_quarantined_records_are_no_rows_of_history(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of([*FOUR, b"junk", None]))
    assert len(table_of(lake, "quarantine_events")) == 3
    assert counts(backtest(lake.settings), "known") == {UNO: (1, 3, 2)}


def test_all_records_may_be_kept_out(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"never": {"check": "1 = 2", "action": "drop"}})
    lake.take(batch_of([bet("uno", "a", 1), bet("uno", "b", 2)]))
    assert not lake.lake.has_table(UNO)
    assert counts(backtest(with_rules(lake, two="bet = 2")), "two") == {UNO: (0, 2, 1)}


def test_kept_out_records_are_decoded_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_out, "CHUNK_RECORDS", 3)
    lake = lake_of(tmp_path, {"odd": {"check": "_offset % 2 = 0", "action": "drop"}})
    for first in range(0, 20, 4):
        lake.take(batch_of([bet("uno", "a", 9)] * 4, first=first))
    folders = []
    opened = history.History.of(lake.settings, 1.0)
    found = kept_out.Records(opened, None).kept_out()
    for decoded in kept_out.BronzeDecoder(opened, found, None).decode():
        [rows] = scan(decoded.storage, [decoded.key], pa.schema([("_offset", pa.int64())]), ["_offset"])
        folders.append((decoded.storage.root, rows["_offset"].to_pylist()))
    assert [offset for _, offsets in folders for offset in offsets] == list(range(1, 20, 2))
    assert len({folder for folder, _ in folders}) > 2
    assert not any(Path(folder).exists() or lake.lake.root in Path(folder).parents for folder, _ in folders)


def test_since_is_the_time_of_landing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    lake.take(batch_of(FOUR[:3], first=4))
    landed = sorted({row["landed_at"] for row in table_of(lake, "bronze_events")})
    assert len(landed) == 2
    early, late, after = landed[0].timestamp(), landed[1].timestamp(), landed[1].timestamp() + 1
    assert counts(backtest(lake.settings, since=early), "known") == {UNO: (2, 5, 3)}
    assert counts(backtest(lake.settings, since=late), "known") == {UNO: (1, 2, 1)}
    assert counts(backtest(lake.settings, since=after), "known") == {UNO: (0, 0, 0)}
    assert backtest(lake.settings, since=late).to_json()["since"] == landed[1].isoformat()


@pytest.mark.parametrize(("since", "checked"), [(-62_135_596_800.0 - 3600, 1), (0.0, 1), (253_402_300_800.0, 0)])
def test_since_may_be_any_moment(tmp_path: Path, since: float, checked: int) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR[:1]))
    assert counts(backtest(lake.settings, since=since), "known") == {UNO: (checked, 0, 0)}


def test_files_that_landed_before_since_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    [old] = DeltaTable(str(lake.lake.path(UNO))).file_uris()
    [first] = {row["landed_at"] for row in table_of(lake, "bronze_events")}
    monkeypatch.setattr("spark_app.units.driver.decode_plan.time.time", lambda: first.timestamp() + 60)
    lake.take(batch_of(FOUR[:3], first=4))
    Path(old).write_bytes(b"damaged")
    assert counts(backtest(lake.settings, since=first.timestamp() + 60), "known") == {UNO: (1, 2, 1)}
    with pytest.raises(ContractError, match=r"cannot be read.*doctor"):
        backtest(lake.settings)
    Path(old).unlink()
    with pytest.raises(UnreachableError, match="was removed while"):
        backtest(lake.settings)


def test_the_lake_stays_as_it_is_and_its_lock_is_not_needed(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    settings = with_rules(lake, new="bet > 3")
    lake.lake.lease.acquire()
    before = digests(tmp_path)
    assert counts(backtest(settings), "new") == {UNO: (1, 3, 2)}
    assert digests(tmp_path) == before
    assert len(before) > 10


def test_a_column_that_only_another_table_has_is_null(tmp_path: Path) -> None:
    other = compile_text(PROTO3 + "message Note { string game_name = 1; string words = 2; }", schema_id=9)
    lake = SmallLake(tmp_path, BETS, LATER, other)
    note = message_class(other, "Note")(game_name="notes", words="x")
    lake.take(batch_of([bet("uno", "a", 5), frame(9, note.SerializeToString())]))
    outcomes = backtest(
        with_rules(lake, words="words IS NULL", bet="bet IS NULL", key="_key IS NULL", guid="_schema_guid = ''")
    )
    assert counts(outcomes, "words") == {"silver_notes_events": (1, 0, 1), UNO: (1, 0, 0)}
    assert counts(outcomes, "bet") == {"silver_notes_events": (1, 0, 0), UNO: (1, 0, 1)}
    assert counts(outcomes, "key") == {"silver_notes_events": (1, 0, 0), UNO: (1, 0, 0)}
    assert counts(outcomes, "guid") == {"silver_notes_events": (1, 0, 1), UNO: (1, 0, 1)}


def test_a_struct_that_has_grown_is_null_in_older_files(tmp_path: Path) -> None:
    text = "message Trip { string game_name = 1; Home home = 2; repeated Home more = 3; }"
    old = compile_text(PROTO3 + text + "message Home { string city = 1; }", schema_id=5)
    new = compile_text(PROTO3 + text + "message Home { string city = 1; optional int32 zip = 2; }", schema_id=6)
    lake = SmallLake(tmp_path, old, new)
    for first, (decodable, more) in enumerate(((old, {}), (new, {"zip": 5}), (new, {}))):
        home = {"city": "x"} | more
        message = message_class(decodable, "Trip")(game_name="uno", home=home, more=[home])
        lake.take(batch_of([frame(decodable.key, message.SerializeToString())], first=first))
    outcomes = backtest(with_rules(lake, zip="home.zip = 5", more="more[1].zip IS NULL AND more[1].city = 'x'"))
    assert (counts(outcomes, "zip"), counts(outcomes, "more")) == ({UNO: (3, 0, 2)}, {UNO: (3, 0, 1)})


def test_keys_and_guids_of_kept_out_records_are_decoded(tmp_path: Path) -> None:
    guid = "b2f7cdb4-0f4e-4f0e-9a53-6f6f0e5d5c51"
    key = compile_text(PROTO3 + "message Key { string name = 1; }", schema_id=2)
    named = compile_text(PROTO3 + "message Bet { string game_name = 1; }", schema_id=guid)
    text = frame(2, message_class(key, "Key")(name="é").SerializeToString())
    rules = {"none": {"check": "1 = 2", "action": "quarantine"}}
    lake = SmallLake(tmp_path, named, key, decode={"framed_keys": True}, expectations=rules)
    value = frame(guid, message_class(named, "Bet")(game_name="uno").SerializeToString())
    lake.take(batch_of([value], key=pa.array([text], pa.binary())))
    outcomes = backtest(with_rules(lake, key="""_key = '{"name": "é"}'""", guid=f"_schema_guid = '{guid}'"))
    assert (counts(outcomes, "key"), counts(outcomes, "guid")) == ({UNO: (0, 1, 0)}, {UNO: (0, 1, 0)})


def test_records_that_cannot_be_decoded_now_are_counted_with_the_reason(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of([*FOUR, bet("uno", "", 5, decodable=LATER, limit=3), bet("hearts", "", 5)]))
    DeltaTable(str(lake.lake.path("bronze_events"))).delete("offset = 2")
    entries = json.loads(lake.lake.storage.get(lake.lake.ledger))
    lake.lake.storage.replace(lake.lake.ledger, json.dumps([e for e in entries if e["key"] == 7]).encode())
    admitted = json.loads(lake.lake.storage.get(lake.lake.admitted))
    admitted = {part: {n: v for n, v in of.items() if n != "hearts"} for part, of in admitted.items()}
    lake.lake.storage.replace(lake.lake.admitted, json.dumps(admitted).encode())
    outcomes = backtest(lake.settings)
    assert counts(outcomes, "known") == {UNO: (1, 2, 2)}
    missing = {"schema 8 is not resolved": 1, kept_out.NO_TABLE: 1, kept_out.NOT_IN_BRONZE: 1}
    assert outcomes.undecodable == missing
    assert len([line for line in outcome_lines(outcomes) if "cannot be decoded now" in line]) == 3


def test_records_that_are_refused_now_are_counted_by_their_cause(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, IN_FORCE)
    lake.take(batch_of(FOUR))
    entries = json.loads(lake.lake.storage.get(lake.lake.ledger))
    refused = [e | {"outcome": "refused", "cause": "schema_invalid", "detail": "too large"} for e in entries]
    lake.lake.storage.replace(lake.lake.ledger, json.dumps(refused).encode())
    outcomes = backtest(with_rules(lake, one="_offset > 0"))
    assert (counts(outcomes, "one"), outcomes.undecodable) == ({UNO: (1, 0, 1)}, {"schema_invalid": 3})


@pytest.mark.parametrize("bytes_of_a_row", [10, 1 << 20])
def test_batches_are_small_in_records_and_bytes(tmp_path: Path, bytes_of_a_row: int) -> None:
    rows = BATCH_RECORDS + 5 if bytes_of_a_row == 10 else 100
    lake = lake_of(tmp_path, {})
    lake.take(batch_of([bet("uno", "g" * bytes_of_a_row, 5)] * rows))
    [key] = lake.opened.units.committer.tables.files(UNO)
    schema = pa.schema([("gamer_id", pa.string())])
    sizes = [(b.num_rows, b.nbytes) for b in scan(lake.lake.storage, [key], schema, schema.names)]
    assert sum(count for count, _ in sizes) == rows
    assert max(count for count, _ in sizes) <= BATCH_RECORDS
    assert max(size for _, size in sizes) <= 2 * BATCH_BYTES


def test_without_a_lake_there_is_nothing_to_check(tmp_path: Path) -> None:
    rules = {"one": {"check": "x > 1", "action": "drop"}}
    settings = Settings(lake={"path": str(tmp_path / "none")}, expectations=rules)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no tables at"):
        backtest(settings)
    with pytest.raises(UsageError):
        backtest(settings, ["two"])
    assert not (tmp_path / "none").exists()
