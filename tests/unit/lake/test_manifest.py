"""The sequence of committed units: nothing is committed that has a gap, an overlap, an imbalance or a file amiss."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.delta.manifest import Change, Manifest, Manifests, counts_of, read_manifest
from spark_app.lake.files.store_errors import StoreError
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError, ExitCode
from spark_app.model.reports import FileEntry, Report
from tests.chaos.units import ingest_unit, open_lake
from tests.support.examples import examples

ROWS = {"bronze_events": pa.table({"x": [1]}), "silver_a_events": pa.table({"x": [1]})}


def decide(lake: Lake, count: int) -> Manifests:
    manifests = Manifests(lake)
    for _ in range(count):
        manifests.commit(ingest_unit(lake, manifests.last + 1, ROWS))
        manifests.mark_applied(manifests.last)
    return manifests


def refused(manifests: Manifests, manifest: Manifest, words: str) -> None:
    """The unit is refused as proven loss, and leaves no trace."""
    before = (manifests.numbers(), manifests.last)
    with pytest.raises(ContractError, match=words) as caught:
        manifests.commit(manifest)
    assert caught.value.exit_code is ExitCode.LOSS
    assert (manifests.numbers(), manifests.last) == before


def test_what_is_decided_is_read_back(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    unit = ingest_unit(lake, 1, ROWS)
    Manifests(lake).commit(unit)
    again = Manifests(lake)
    assert (again.last, again.last_ingest, again.read(1)) == (1, unit, unit)
    assert list(again.read(1).tables) == list(ROWS)


@pytest.mark.parametrize("start", [2, 0], ids=["gap", "overlap"])
def test_gap_and_overlap_are_refused(tmp_path: Path, start: int) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 1)
    unit = ingest_unit(lake, 2, ROWS)
    refused(manifests, replace(unit, source=unit.source | {"start": {"t": {"0": start}}}), "the last one ended at")


def test_unit_of_deferred_records_between_does_not_move_the_end(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 1)
    manifests.commit(replace(ingest_unit(lake, 2, {}), kind="deferred", source={"records": 1}))
    third = ingest_unit(lake, 3, ROWS)
    refused(manifests, third, "the last one ended at")
    manifests.commit(replace(third, source=third.source | {"start": {"t": {"0": 1}}}))
    assert Manifests(lake).last == 3


@pytest.mark.parametrize("sequence", [1, 3])
def test_number_out_of_turn_is_refused(tmp_path: Path, sequence: int) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 1)
    refused(manifests, replace(ingest_unit(lake, 2, ROWS), sequence=sequence), "does not follow 1")


@pytest.mark.parametrize(
    "counts",
    [
        {"bronze": 2},
        {"silver": {}},
        {"quarantine": {"frame_short": 1}},
        {"deferred": 1},
        {"tombstones": 1},
        {"silver": {"a": 2}, "bronze": 1},
    ],
    ids=str,
)
def test_imbalance_is_refused(tmp_path: Path, counts: dict[str, Any]) -> None:
    lake = open_lake(tmp_path)
    unit = ingest_unit(lake, 1, ROWS)
    refused(Manifests(lake), replace(unit, counts=unit.counts | counts), "records were ingested")


@pytest.mark.parametrize(
    ("tables", "counts", "table"),
    [
        (["silver_a_events"], {}, "bronze_events"),
        (["bronze_events"], {}, "silver_a_events"),
        (["bronze_events", "silver_a_events"], {"silver": {"b": 1}}, "silver_a_events"),
        (["bronze_events", "silver_a_events"], {"silver": {}, "tombstones": 1}, "silver_a_events"),
        (["bronze_events", "quarantine_events"], {"silver": {}, "tombstones": 1}, "quarantine_events"),
        (["bronze_events"], {"silver": {}, "quarantine": {"frame_short": 1}}, "quarantine_events"),
        (["bronze_events", "deferred_events"], {"silver": {}, "tombstones": 1}, "deferred_events"),
        (["bronze_events"], {"silver": {}, "deferred": 1}, "deferred_events"),
    ],
    ids=str,
)
def test_files_with_other_rows_than_are_counted_are_refused(
    tmp_path: Path, tables: list[str], counts: dict[str, Any], table: str
) -> None:
    """Counts that balance say nothing of rows that were never written, or written to another table."""
    lake = open_lake(tmp_path)
    written = {t: ingest_unit(lake, 1, {t: pa.table({"x": [1]})}).tables[t] for t in tables}
    unit = ingest_unit(lake, 1, ROWS)
    unit = replace(unit, tables=written, counts=unit.counts | counts)
    refused(Manifests(lake), unit, f"rows of {table} were counted")


def test_rows_that_wait_on_are_part_of_the_balance(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    unit = ingest_unit(lake, 1, {"deferred_events": pa.table({"x": [1, 2]}), "silver_a_events": pa.table({"x": [1]})})
    kept = {name: change for name, change in unit.tables.items() if name != "bronze_events"}
    counts = unit.counts | {"bronze": 1, "deferred": 0}
    unit = replace(unit, kind="deferred", tables=kept, counts=counts, source={"records": 1, "left": 1})
    refused(Manifests(lake), unit, "1 rows of deferred_events were counted, but 2 written")
    Manifests(lake).commit(replace(unit, source={"records": 1, "left": 2}))


def test_where_the_first_unit_of_ingest_started_is_kept(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 5)
    manifests.forget(keep=1, needed_from=5)
    assert json.loads((lake.path(lake.manifests) / "began").read_text()) == {"start": {"t": {"0": 0}}, "topic_ids": {}}


@pytest.mark.parametrize("damage", ["missing", "longer", "shorter", "empty"])
def test_file_that_is_not_what_it_says_is_refused(tmp_path: Path, damage: str) -> None:
    lake = open_lake(tmp_path)
    unit = ingest_unit(lake, 1, ROWS)
    path = lake.path("silver_a_events") / unit.tables["silver_a_events"].adds[0].path
    data = path.read_bytes()
    path.write_bytes({"missing": b"", "longer": data + b"x", "shorter": data[:-1], "empty": b""}[damage])
    if damage == "missing":
        path.unlink()
    refused(Manifests(lake), unit, path.name)


@given(st.data())
@examples(0.3)
def test_any_altered_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lake = open_lake(tmp_path_factory.mktemp("lake"))
    unit = ingest_unit(lake, 1, ROWS)
    Manifests(lake).commit(unit)
    [path] = lake.path(lake.manifests).glob("0*.json")
    text = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(text)
    try:
        found = Manifests(lake).read(1)
    except ContractError as error:
        words = str(error)
    else:
        assert found == unit  # white space
        return
    assert path.name in words


def test_cut_manifest_is_noticed(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    decide(lake, 1)
    [path] = lake.path(lake.manifests).glob("0*.json")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ContractError, match="restore it"):
        Manifests(lake)


def test_half_written_manifest_is_no_manifest(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    decide(lake, 2)
    (lake.path(lake.manifests) / ".000000000003.json.77.tmp").write_text("{")
    assert Manifests(lake).last == 2


def test_forget_keeps_what_somebody_needs(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 8)
    manifests.forget(keep=3, needed_from=2)
    assert manifests.numbers() == [3, 4, 5, 6, 7, 8]
    manifests.forget(keep=3, needed_from=8)
    assert manifests.numbers() == [6, 7, 8]
    assert Manifests(lake).last == 8


def test_forget_keeps_open_units_and_the_last_of_ingest(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    manifests = decide(lake, 2)
    for sequence in range(3, 8):
        manifests.commit(replace(ingest_unit(lake, sequence, {}), kind="deferred", source={"records": 1}))
    manifests.mark_applied(5)
    manifests.forget(keep=0, needed_from=100)
    assert manifests.numbers() == [2, 6, 7]
    again = Manifests(lake)
    assert again.last_ingest is not None
    assert (again.last, again.last_ingest.sequence) == (7, 2)


COUNTS = st.dictionaries(st.text(max_size=5), st.integers(0, 2**53), max_size=3)
ENTRIES = st.builds(
    FileEntry, st.text(max_size=9), st.integers(0), st.integers(0), st.text(max_size=9), st.text(max_size=9)
)


@given(
    st.builds(
        Report,
        files=st.dictionaries(st.text(max_size=5), st.lists(ENTRIES, max_size=2), max_size=2),
        bronze=st.integers(0),
        silver=COUNTS,
        quarantine=COUNTS,
        schema_ids=st.dictionaries(st.text(max_size=5), COUNTS, max_size=2),
        spans=st.dictionaries(st.text(max_size=5), st.tuples(*[st.integers(0)] * 3).map(list), max_size=2),
        new_values=COUNTS,
        newest=st.none() | st.integers(0),
        seconds=st.floats(0, 1e6),
        steps=st.dictionaries(st.text(max_size=5), st.floats(0, 1e6), max_size=3),
    )
)
@examples(0.5)
def test_reports_and_manifests_survive_their_text(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report
    manifest = Manifest(1, "ingest", {}, {t: Change(files) for t, files in report.files.items()}, counts_of(report))
    again = Manifest.from_json(manifest.text)
    assert (again, again.digest) == (manifest, manifest.digest)


def test_each_schema_is_stored_once() -> None:
    files = [FileEntry(f"part-{number}", 1, 2, "{}", schema) for number, schema in enumerate("aabba")]
    manifest = Manifest(1, "ingest", {}, {"one": Change(files), "two": Change(files[2:], ["old"])}, {})
    assert json.loads(manifest.text)["schemas"] == ["a", "b"]
    assert Manifest.from_json(manifest.text).tables == manifest.tables


def test_a_manifest_of_the_earlier_format_keeps_its_digest(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    decide(lake, 1)
    path = lake.path(lake.manifests) / "000000000001.json"
    manifest = read_manifest(lake.storage, f"{lake.manifests}/000000000001.json")
    text = json.dumps({f.name: getattr(manifest, f.name) for f in fields(manifest)}, default=vars)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({"format": 1, "digest": digest, "manifest": text}))
    again = Manifests(lake).read(1)
    assert again.tables == manifest.tables
    assert any(change.adds for change in again.tables.values())
    assert again.digest == digest != manifest.digest


def test_the_stored_text_has_a_format(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    decide(lake, 1)
    stored = json.loads((lake.path(lake.manifests) / "000000000001.json").read_text())
    assert sorted(stored) == ["digest", "format", "manifest"]


def test_a_store_that_does_not_answer_damages_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path)
    decide(lake, 1)

    def get(*_: object) -> bytes:
        raise StoreError("no answer")

    monkeypatch.setattr(type(lake.storage), "get", get)
    with pytest.raises(StoreError):
        read_manifest(lake.storage, f"{lake.manifests}/000000000001.json")
