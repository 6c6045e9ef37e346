"""Files as a source, through the app's own pass: each record once, whatever arrives how."""

from __future__ import annotations

import base64
import errno
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.audit.auditor import audit
from spark_app.lake.files import failpoints
from spark_app.model.errors import ContractError
from spark_app.model.reports import Report
from spark_app.sources.files import ingested
from spark_app.units.driver.file_stream import FileStream, origin_of
from spark_app.units.driver.ingest import RunContext
from spark_app.units.driver.job_input import Records
from spark_app.units.driver.unit import UnitOptions
from tests.spark.parts import Killed, Parts, events
from tests.support.file_sources import json_text, parquet_table, replace_file, write_json, write_parquet

pytestmark = pytest.mark.spark
FILES = int(os.environ.get("PROTOLAKE_TEST_FILES", 4_000))
NewParts = Callable[..., Parts]
PLAYERS = [("rummy", "a"), ("uno", "b"), ("rummy", "c")]


def files_of(new_parts: NewParts, folder: Path, batch: dict[str, Any] | None = None, **source: Any) -> Parts:
    own = {"kind": "files", "path": str(folder), "settle_s": 0.0, "full_list_s": 0.001} | source
    folder.mkdir(exist_ok=True)
    return new_parts(source=own, batch=batch or {})


def take_all(parts: Parts) -> None:
    """What `run --available-now` does."""
    run = RunContext(parts.status, parts.disk, parts.stop, parts.unit_lock)
    stream = FileStream(parts.spark, parts.opened, parts.units, run, available_now=True)
    stream.keep(origin_of(parts.settings.source.name, False), lambda: None)


def values_of(parts: Parts) -> list[bytes | None]:
    """The values in bronze in the order of their numbers, which must follow each other."""
    rows = parts.read("bronze_events").sort("offset")
    assert rows["offset"].to_list() == list(range(len(rows)))
    return rows["value"].to_list()


def test_parquet_and_json_become_rows_and_nothing_twice(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder)
    parts.learn(1)
    one, two = events(1, PLAYERS), events(1, [("uno", "d"), ("uno", "e")])
    write_parquet(folder / "day=1/b.parquet", one)
    write_json(folder / "day=2/a.jsonl", two)
    (folder / "_SUCCESS").write_text("")
    (folder / "readme.txt").write_text("no records")
    take_all(parts)
    assert values_of(parts) == one + two
    silver = parts.read("silver_uno_events")
    assert silver.sort("_offset")["gamer_id"].to_list() == ["b", "d", "e"]
    assert set(silver["_topic"]) == {"files"}
    bronze = parts.read("bronze_events").sort("offset")
    assert bronze["key"].to_list() == [b"k0", b"k1", b"k2", None, None]
    assert bronze["timestamp_type"].to_list() == [0, 0, 0, -1, -1]
    again = files_of(new_parts, folder)
    take_all(again)
    assert again.manifests.last == parts.manifests.last
    write_json(folder / "day=0/late.json", one)
    take_all(again)
    assert values_of(again) == one + two + one
    assert again.status.value["source"]["taken"] == 3


@pytest.mark.parametrize(("step", "why"), [("add", errno.EIO), ("add", errno.ENOSPC), ("apply", errno.ENOSPC)])
def test_nothing_is_taken_twice_if_a_step_after_the_manifest_fails_once(
    new_parts: NewParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, why: int
) -> None:
    """The app goes on in the same process."""
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder)
    parts.learn(1)
    one, two = events(1, PLAYERS), events(1, [("uno", "d")])
    write_json(folder / "a.json", one)
    take_all(parts)
    write_json(folder / "b.json", two)
    owner = ingested.IngestedFiles if step == "add" else type(parts.opened.units.committer)
    right, failed = getattr(owner, step), []

    def fail_once(*arguments: Any) -> Any:
        if not failed:
            failed.append(step)
            raise OSError(why, os.strerror(why))
        return right(*arguments)

    monkeypatch.setattr(owner, step, fail_once)
    take_all(parts)
    assert failed == [step]
    assert values_of(parts) == one + two
    write_json(folder / "c.json", two)
    take_all(parts)
    assert values_of(parts) == one + two + two
    assert audit(parts.settings).faults() == {}


def test_a_text_that_is_no_unicode_is_quarantined_with_its_bytes(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder)
    parts.learn(1)
    one = events(1, PLAYERS)
    folder.joinpath("b.json").write_text('{"value": "AAAA", "headers": [{"key": "\\ud800", "value": null}]}\n')
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    pq.write_table(pa.table({"value": text}), folder / "a.parquet")
    write_json(folder / "c.json", one)
    take_all(parts)
    assert values_of(parts) == [b"\xff", folder.joinpath("b.json").read_bytes().rstrip(), *one]
    assert parts.status.value["source"]["named"] == {}
    assert sorted(parts.read("quarantine_events")["offset"].to_list()) == [0, 1]
    assert audit(parts.settings).faults() == {}


def test_the_audit_compares_bronze_with_the_files(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder, {"max_records": 300, "max_record_bytes": 200})
    parts.learn(1)
    values = events(1, [("rummy", f"g{number}") for number in range(900)])
    write_parquet(folder / "a.parquet", [*values[:400], None, values[0] + b"x" * 300], group=100)
    headers = [{"key": "h", "value": base64.b64encode(b"v").decode()}, {"key": "none", "value": None}]
    line = {"value": base64.b64encode(values[0]).decode(), "headers": headers, "timestamp": "2026-01-01T00:00:00.5Z"}
    (folder / "b.json").write_text(json.dumps(line) + "\n\nno record\n" + json_text(values[400:]))
    take_all(parts)
    verdict = audit(parts.settings)
    assert (verdict.faults(), verdict.records) == ({}, 904)
    assert list(verdict.notes) == ["gold tables do not exist yet"]
    data = (folder / "a.parquet").read_bytes()
    write_parquet(folder / "a.parquet", values[400:402])
    verdict = audit(parts.settings)
    assert (verdict.faults(), sorted(verdict.notes.values())) == ({}, [1, 1, 402])
    replace_file(folder / "a.parquet", data)
    bronze = parts.lake.path("bronze_events")
    rows = DeltaTable(bronze).to_pyarrow_table()
    values_there = rows["value"].to_pylist()
    values_there[7] = b"altered"
    write_deltalake(bronze, rows.set_column(1, "value", pa.array(values_there, pa.binary())), mode="overwrite")
    assert audit(parts.settings).faults()["altered"][0] == 1  # type: ignore[index]


def test_a_file_larger_than_a_batch_is_split_and_its_numbers_go_on(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder, {"max_records": 250})
    parts.learn(1)
    values = events(1, [("rummy", f"g{number}") for number in range(1000)])
    write_parquet(folder / "a.parquet", values, group=100)
    write_parquet(folder / "b.parquet", values[:3])
    take_all(parts)
    assert values_of(parts) == values + values[:3]
    assert parts.manifests.last == 5


def test_a_file_that_is_split_must_stay_until_it_is_taken(
    new_parts: NewParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder, {"max_records": 100})
    parts.learn(1)
    values = events(1, [("rummy", f"g{number}") for number in range(300)])
    write_parquet(folder / "a.parquet", values, group=100)
    kill_at("taken.before", monkeypatch)
    with pytest.raises(Killed):
        take_all(parts)
    data = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").unlink()
    again = files_of(new_parts, folder, {"max_records": 100})
    with pytest.raises(ContractError, match=r"a\.parquet is gone, but only 100 of its 300 rows are ingested"):
        take_all(again)
    replace_file(folder / "a.parquet", data)
    take_all(files_of(new_parts, folder, {"max_records": 100}))
    assert values_of(again) == values


def test_a_table_of_delta_is_followed_by_its_log(new_parts: NewParts, tmp_path: Path) -> None:
    folder, values = tmp_path / "in", events(1, [("uno", f"g{number}") for number in range(8)])
    write_deltalake(folder, parquet_table(values[:2]))
    write_deltalake(folder, parquet_table(values[2:4]), mode="append")
    parts = files_of(new_parts, folder)
    parts.learn(1)
    take_all(parts)
    assert Counter(values_of(parts)) == Counter(values[:4])
    DeltaTable(folder).optimize.compact()
    write_deltalake(folder, parquet_table(values[4:]), mode="append")
    DeltaTable(folder).vacuum(0, dry_run=False, enforce_retention_duration=False)
    again = files_of(new_parts, folder)
    take_all(again)
    assert Counter(values_of(again)) == Counter(values)
    assert again.manifests.last_ingest
    assert again.manifests.last_ingest.source["version"] == 2
    DeltaTable(folder).delete("value is not null")
    with pytest.raises(ContractError, match="changes or deletes rows"):
        take_all(files_of(new_parts, folder))


def test_the_ledger_is_made_again_from_the_manifests_or_the_start_is_refused(
    new_parts: NewParts, tmp_path: Path
) -> None:
    folder, values = tmp_path / "in", events(1, PLAYERS)
    parts = files_of(new_parts, folder, {"max_records": 3})
    parts.learn(1)
    for name in ("a.json", "b.json"):
        write_json(folder / name, values)
    take_all(parts)
    shutil.rmtree(parts.lake.path(parts.lake.ingested))
    take_all(files_of(new_parts, folder))
    assert values_of(parts) == values + values
    shutil.rmtree(parts.lake.path(parts.lake.ingested))
    parts.lake.path(parts.lake.manifests).joinpath("000000000001.json").unlink()
    with pytest.raises(ContractError, match="has 3 rows of ingested files, but the last unit ended at 6"):
        take_all(files_of(new_parts, folder))


def test_a_table_of_delta_without_its_beginning_goes_on_where_the_manifests_say_or_is_refused(
    new_parts: NewParts, tmp_path: Path
) -> None:
    folder, values = tmp_path / "in", events(1, [("uno", f"g{number}") for number in range(6)])
    write_deltalake(folder, parquet_table(values[:2]))
    parts = files_of(new_parts, folder)
    parts.learn(1)
    take_all(parts)
    shutil.rmtree(parts.lake.path(parts.lake.ingested))
    write_deltalake(folder, parquet_table(values[2:4]), mode="append")
    DeltaTable(folder).optimize.compact()
    with pytest.raises(ContractError, match=r"began\.json is missing"):
        take_all(files_of(new_parts, folder))


def test_a_file_whose_content_is_damaged_is_named_and_the_others_are_taken(new_parts: NewParts, tmp_path: Path) -> None:
    folder, values = tmp_path / "in", events(1, [("uno", f"g{number}") for number in range(100)])
    parts = files_of(new_parts, folder)
    parts.learn(1)
    pq.write_table(parquet_table(values), folder / "a.parquet", compression="zstd")
    write_json(folder / "b.json", values)
    whole = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[:4] + bytes(1000) + whole[1004:])
    take_all(parts)
    assert values_of(parts) == values
    assert "cannot be read" in parts.status.value["source"]["named"]["a.parquet"]
    replace_file(folder / "a.parquet", whole)
    take_all(files_of(new_parts, folder))
    assert values_of(parts) == values + values


def test_a_batch_that_fails_too_often_lands_also_over_restarts(
    new_parts: NewParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although more files come meanwhile, so that the batch ends elsewhere."""
    folder, values = tmp_path / "in", events(1, PLAYERS)
    folder.mkdir()
    for tried in range(4):
        write_json(folder / f"{tried}.json", values)
        parts = files_of(new_parts, folder, {"max_attempts": 3})
        parts.learn(1)
        run = parts.units.run

        def broken(taken: Records, sequence: int, origin: UnitOptions) -> Report:
            if not origin.land_only:
                raise Killed
            return run(taken, sequence, origin)  # noqa: B023

        monkeypatch.setattr(parts.units, "run", broken)
        if tried < 3:
            with pytest.raises(Killed):
                take_all(parts)
        else:
            take_all(parts)
    assert values_of(parts) == values * 4
    assert sorted(parts.lake.tables()) == ["bronze_events", "deferred_events"]


def test_rows_that_are_no_records_are_quarantined_with_their_bytes(new_parts: NewParts, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    parts = files_of(new_parts, folder)
    parts.learn(1)
    good = events(1, PLAYERS)
    lines = json_text(good).splitlines()
    folder.joinpath("a.json").write_text("\n".join([lines[0], '{"value": "no base64"}', "", lines[1], "{"]) + "\n")
    take_all(parts)
    rows = parts.read("bronze_events").sort("offset")
    assert rows["offset"].to_list() == [0, 1, 3, 4]
    assert rows["value"].to_list() == [good[0], b'{"value": "no base64"}', good[1], b"{"]
    assert sorted(parts.read("quarantine_events")["offset"].to_list()) == [1, 4]


def kill_at(point: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the app end at the next time that it comes to the point. Returns a list that is empty once it has."""
    left = [point]

    def meet(met: str) -> None:
        if met in left:
            left.remove(met)
            raise Killed

    monkeypatch.setattr(failpoints, "_meet", meet)
    return left


POINTS = [
    "batch.before",
    "pass.after",
    "ingest.manifest.before",
    "ingest.manifest.after",
    "taken.before",
    "taken.after",
    "ingest.commit.first.after",
    "taken.merge.before",
    "taken.merge.after",
    "batch.after",
]


@pytest.mark.nightly
def test_ten_thousand_files_in_any_order_late_twice_half_and_replaced_with_kills(
    new_parts: NewParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is in bronze once, or its file is named."""
    monkeypatch.setattr(ingested, "MOST_SEGMENTS", 4)
    monkeypatch.setattr(ingested, "LEAST_MERGED", 3)
    chance, folder, most = random.Random(27), tmp_path / "in", {"max_records": FILES // 8}
    names = [f"day={number % 7}/{number:07d}.jsonl" for number in range(FILES)]
    values = events(1, [(("rummy", "uno")[n % 2], f"g{n}") for n in range(FILES)])
    texts = dict(zip(names, (json_text([value]) for value in values), strict=True))
    chance.shuffle(names)
    half, never = names[: FILES // 50], names[FILES // 50 : FILES // 50 + 10]
    for number in range(7):
        (folder / f"day={number}").mkdir(parents=True)
    files_of(new_parts, folder, most).learn(1)

    def arrive(some: list[str]) -> None:
        for name in some:
            cut = len(texts[name]) // 2 if name in half or name in never else None
            (folder / name).write_text(texts[name][:cut])

    def drain(points: Iterator[str]) -> Parts:
        while True:
            left = kill_at(next(points, ""), monkeypatch)
            parts = files_of(new_parts, folder, most, full_list_s=0.001 if chance.random() < 0.5 else 300.0)
            try:
                take_all(parts)
            except Killed:
                continue
            if left in ([""], []) or left[0].startswith("taken.merge"):
                return parts

    arrive(sorted(names[: FILES // 2], key=lambda _: chance.random()))
    parts = drain(iter(POINTS[:5]))
    assert set(parts.status.value["source"]["named"]) <= {*half, *never}
    assert parts.status.value["source"]["broken"] == len(half) + len(never)
    for name in chance.sample(names[FILES // 4 : FILES // 2], 100):  # written again, with the same content
        replace_file(folder / name, texts[name].encode())
    arrive(names[FILES // 2 :])
    for name in half:
        (folder / name).write_text(texts[name])
    parts = drain(iter(POINTS[5:]))
    due = dict(zip(texts, values, strict=True))
    taken = Counter(values_of(parts))
    assert taken == Counter(value for name, value in due.items() if name not in never)
    assert set(parts.status.value["source"]["named"]) == set(never)
    silver = sum(len(parts.read(f"silver_{game}_events")) for game in ("rummy", "uno"))
    assert silver == FILES - len(never)
    replaced = names[FILES // 3]
    replace_file(folder / replaced, json_text([b"other"]).encode())
    with pytest.raises(ContractError, match=f"{replaced} was replaced after its records were ingested"):
        take_all(files_of(new_parts, folder, most))
    replace_file(folder / replaced, texts[replaced].encode())
    last = parts.manifests.last
    parts = files_of(new_parts, folder, most)
    take_all(parts)
    assert parts.manifests.last == last
