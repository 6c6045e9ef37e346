"""A whole task, without Spark: mixed records in, real Parquet files out, each record in one table."""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.delta import parquet as files
from spark_app.lake.files.local import LocalStorage
from spark_app.model.catalog import Catalog
from spark_app.model.causes import CAUSE_HELP, Cause
from spark_app.model.record_schemas import BRONZE_SCHEMA
from spark_app.model.reports import Report
from spark_app.model.table_names import TableNames
from spark_app.sources.bronze import Share, find_row_groups
from spark_app.tables.route import Routing
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan
from tests.support.cost import least_cpu
from tests.support.examples import examples
from tests.support.frames import batch_of, frame
from tests.support.protos import PROTO3, catalog_of, compile_text, message_class

HEAD = PROTO3 + 'import "google/protobuf/timestamp.proto"; message Event { string game_name = 1; string gamer_id = 2; '
TAIL = (
    "google.protobuf.Timestamp at = 3; optional string c1 = 5; } message Other { bytes blob = 1; } message Nothing {}"
)
OLD, NEW, REFUSED, WAITING, STRANGE, NO_ID = 1, 2, 8, 9, 77, 2**31 + 5
V1 = compile_text(HEAD + "google.protobuf.Timestamp at = 3; int64 c0 = 4; }", schema_id=OLD)
V2 = compile_text(HEAD + "optional string c0 = 4; " + TAIL, schema_id=NEW)
CATALOG = replace(
    catalog_of(V1, V2, refused={REFUSED: (Cause.SCHEMA_INVALID.value, "no")}), waiting=frozenset({WAITING})
)
ADMITTED = {"rummy": "rummy", "Go_Fish": "go_fish"}
MESSAGES = dict.fromkeys(ADMITTED.values(), ("Event", "Event#2"))  # the versions disagree on c0
ROUTING = Routing("game_name", ADMITTED, frozenset(), True, messages=MESSAGES)
LAYOUT = TableNames()
Identity = tuple[str, int, int]


def event(schema_id: int, game: str, **fields: Any) -> bytes:
    message = message_class(V1 if schema_id == OLD else V2, "Event")
    return frame(schema_id, message(game_name=game, gamer_id="g", **fields).SerializeToString())


FAR = {"seconds": 1 << 50}
# What a record is -> (its value, where it must end: a table, or the cause it has in quarantine).
KINDS: dict[str, tuple[bytes | None, str]] = {
    "old": (event(OLD, "rummy", c0=5), "silver_rummy_events"),
    "new": (event(NEW, "Go_Fish", c1="x"), "silver_go_fish_events"),
    "new with a number as text": (event(NEW, "rummy", c0="5"), "decode_type"),
    "tombstone": (None, ""),
    "short": (b"\0\0", "frame_short"),
    "json": (b'{"game_name": "rummy"}', "frame_magic"),
    "index cut off": (b"\0\0\0\0\1\x80", "frame_index"),
    "index of nothing": (frame(OLD, b"", (7,)), "schema_index"),
    "refused schema": (frame(REFUSED, b"x"), "schema_invalid"),
    "refused schema without an index": (b'\0\0\0\0\x08{"a": 1}', "schema_invalid"),
    "waiting schema": (frame(WAITING, b"x"), "deferred_events"),
    "waiting schema without an index": (b'\0\0\0\0\x09{"a": 1}', "deferred_events"),
    "id beyond all ids": (frame(NO_ID, b"x"), "schema_unknown"),
    "broken payload": (frame(OLD, b"\x0a\xff"), "decode_payload"),
    "year 30,000,000": (event(OLD, "rummy", at=FAR), "decode_range"),
    "no game": (event(OLD, ""), "route_missing"),
    "a path as game": (event(OLD, "../../x"), "route_name"),
    "the same name": (event(OLD, "RUMMY"), "route_collision"),
    "another message": (frame(NEW, b"", (1,)), "route_missing"),
    "no fields": (frame(NEW, b"", (2,)), "route_missing"),
}
MIXED = st.lists(st.sampled_from(sorted(KINDS)), max_size=30)


def plan_for(folder: Path, **more: Any) -> TaskPlan:
    plan = TaskPlan(
        LocalStorage(folder), "part-000000000001-aaaaaaaa", LAYOUT, ROUTING, {"t": "id-of-t"}, 1_700_000_000_000_000
    )
    return replace(plan, **more)


def run(batches: Sequence[pa.RecordBatch], plan: TaskPlan, catalog: Catalog = CATALOG) -> Report:
    return Report.from_json(task.run(iter(batches), plan, catalog, "00000-0").to_json())


def read_back(folder: Path, report: Report) -> dict[str, pa.Table]:
    """Every table as its files hold it; each file must be what the report says, and no file unnamed."""
    named = {folder / table / entry.path: entry for table, entries in report.files.items() for entry in entries}
    assert set(folder.rglob("*.parquet")) == set(named)
    for path, entry in named.items():
        assert (path.stat().st_size, pq.read_metadata(path).num_rows) == (entry.size, entry.rows)
    return {
        table: pa.concat_tables(
            [pq.read_table(folder / table / entry.path) for entry in entries], promote_options="default"
        )
        for table, entries in report.files.items()
    }


def identities(table: pa.Table | None, prefix: str = "") -> list[Identity]:
    if table is None:
        return []
    return list(zip(*(table[f"{prefix}{name}"].to_pylist() for name in ("topic", "partition", "offset")), strict=True))


def places(tables: dict[str, pa.Table]) -> dict[Identity, str]:
    """Where each record ended: a table, or a cause. None twice."""
    found: list[tuple[Identity, str]] = []
    for name, rows in tables.items():
        if name == LAYOUT.quarantine:
            found += zip(identities(rows), rows["cause"].to_pylist(), strict=True)
        elif name == LAYOUT.deferred:
            found += [(identity, name) for identity in identities(rows)]
        elif name != LAYOUT.bronze:
            found += [(identity, name) for identity in identities(rows, "_")]
    assert len(dict(found)) == len(found)
    return dict(found)


@given(st.lists(MIXED, max_size=3), st.sampled_from([0, 200, 1 << 30]))
@examples(0.2)
def test_each_record_is_in_bronze_once_and_placed_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], buffer_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    values = [[KINDS[kind][0] for kind in kinds] for kinds in batches]
    report = run(
        [batch_of(v, first=100, partition=p) for p, v in enumerate(values)], plan_for(folder, buffer_bytes=buffer_bytes)
    )
    tables = read_back(folder, report)
    truth = {("t", p, 100 + o): value for p, batch in enumerate(values) for o, value in enumerate(batch)}
    bronze = tables.get(LAYOUT.bronze, BRONZE_SCHEMA.empty_table())
    assert dict(zip(identities(bronze), bronze["value"].to_pylist(), strict=True)) == truth
    assert len(bronze) == len(truth)
    due = {("t", p, 100 + o): KINDS[kind][1] for p, kinds in enumerate(batches) for o, kind in enumerate(kinds)}
    assert places(tables) == {identity: place for identity, place in due.items() if place}
    taken, placed = report.balance()
    assert taken == placed == len(truth)
    assert Counter(due.values()) == Counter(
        {LAYOUT.silver_of(name): count for name, count in report.silver.items()}
        | report.quarantine
        | {k: v for k, v in (("", report.tombstones), (LAYOUT.deferred, report.deferred)) if v}
    )
    assert report.spans == {f"t/{p}": [100, 99 + len(v), len(v)] for p, v in enumerate(values) if v}


def test_small_buffers_give_the_same_rows(tmp_path: Path) -> None:
    dice = random.Random(5)
    batches = [batch_of([KINDS[kind][0] for kind in dice.choices(sorted(KINDS), k=40)], first=40 * i) for i in range(5)]
    large, small = (
        (report, read_back(tmp_path / name, report))
        for name, size in (("large", 1 << 30), ("small", 1))
        for report in [run(batches, plan_for(tmp_path / name, buffer_bytes=size))]
    )
    for table, rows in large[1].items():
        order = [(name, "ascending") for name in rows.column_names if name.endswith("offset")]
        assert rows.sort_by(order).equals(small[1][table].select(rows.column_names).sort_by(order))
    assert sum(map(len, small[0].files.values())) > sum(map(len, large[0].files.values()))
    assert replace(small[0], files={}, steps={}) == replace(large[0], files={}, steps={})


@pytest.mark.parametrize(
    ("bronze", "written"), [("zstd", "ZSTD"), ("zstd:-5", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")]
)
def test_bronze_has_a_compression_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bronze: str, written: str
) -> None:
    monkeypatch.setattr(files, "SMALL_BYTES", 0)
    plan = plan_for(tmp_path, compression="snappy", bronze_compression=bronze)
    batch = batch_of([KINDS["old"][0], KINDS["short"][0]])
    report = run([batch], plan)
    found = {
        table: pq.read_metadata(tmp_path / table / entry.path).row_group(0).column(0).compression
        for table, (entry,) in report.files.items()
    }
    assert found == {LAYOUT.bronze: written, "silver_rummy_events": "SNAPPY", LAYOUT.quarantine: "SNAPPY"}
    assert read_back(tmp_path, report)[LAYOUT.bronze]["value"].to_pylist() == batch.column("value").to_pylist()


def test_values_land_with_their_fields_and_lineage(tmp_path: Path) -> None:
    report = run([batch_of([event(OLD, "rummy", c0=5), event(NEW, "rummy", c1="x")], first=7)], plan_for(tmp_path))
    old, new = read_back(tmp_path, report)["silver_rummy_events"].sort_by("_offset").to_pylist()
    assert (old["game_name"], old["c0"], old["c1"]) == ("rummy", 5, None)
    assert (new["gamer_id"], new["c0"], new["c1"]) == ("g", None, "x")
    assert [row["_schema_id"] for row in (old, new)] == [OLD, NEW]
    assert [(row["_topic"], row["_topic_id"], row["_offset"]) for row in (old, new)] == [
        ("t", "id-of-t", 7),
        ("t", "id-of-t", 8),
    ]
    assert report.schema_ids == {"rummy": {"1": 1, "2": 1}}


def test_a_record_of_another_kind_of_schema_keeps_its_id_and_names_the_kind(tmp_path: Path) -> None:
    """JSON and Avro have no message index; a Protobuf record should have one."""
    heads = [bytes(SchemaId("JSON", schema_id=key).id_to_bytes()) for key in (REFUSED, OLD, STRANGE)]
    report = run([batch_of([head + b'{"a": 1}' for head in heads])], plan_for(tmp_path, defer_new=True))
    tables = read_back(tmp_path, report)
    refused = tables[LAYOUT.quarantine].select(["cause", "detail", "schema_id", "refused_schema"]).to_pylist()
    assert [list(row.values()) for row in refused] == [
        ["schema_invalid", "no", REFUSED, str(REFUSED)],
        ["frame_index", CAUSE_HELP[Cause.FRAME_INDEX], OLD, None],
    ]
    assert tables[LAYOUT.deferred]["waits_for"].to_pylist() == [str(STRANGE)]
    assert tables[LAYOUT.bronze]["schema_id"].to_pylist() == [REFUSED, OLD, STRANGE]


def test_land_only_defers_every_record_but_tombstones(tmp_path: Path) -> None:
    values = [value for value, _ in KINDS.values()]
    report = run([batch_of(values)], plan_for(tmp_path, land_only=True))
    tables = read_back(tmp_path, report)
    assert set(tables) == {LAYOUT.bronze, LAYOUT.deferred}
    assert tables[LAYOUT.bronze]["value"].to_pylist() == values
    assert (report.deferred, report.tombstones) == (len(values) - 1, 1)
    assert report.balance() == (len(values), len(values))


def test_what_is_outside_the_closed_set_is_reported_and_breaks_the_balance(tmp_path: Path) -> None:
    values = [frame(STRANGE, b"x")] * 3 + [event(OLD, "uno")] * 2 + [event(OLD, "rummy")]
    report = run([batch_of(values)], plan_for(tmp_path))
    assert (report.new_ids, report.new_values) == ({"77": 3}, {"uno": {"Event": 2}})
    assert report.balance() == (6, 1)


def test_after_settling_new_ids_wait_and_new_values_are_over_the_cap(tmp_path: Path) -> None:
    values = [frame(STRANGE, b"x")] * 3 + [event(OLD, "uno")] * 2
    report = run([batch_of(values)], plan_for(tmp_path, defer_new=True, routing=replace(ROUTING, room=False)))
    assert (report.new_ids, report.new_values) == ({}, {})
    assert (report.deferred, report.quarantine) == (3, {"route_cap": 2})
    assert report.balance() == (5, 5)


def test_rows_from_bronze_keep_what_bronze_says_and_are_not_landed_again(tmp_path: Path) -> None:
    values = [value for value, _ in KINDS.values()]
    landed = run([batch_of(values)], plan_for(tmp_path / "first", landed_at=5_000_000))
    first = read_back(tmp_path / "first", landed)
    again = plan_for(tmp_path / "again", write_bronze=False, topic_ids={}, landed_at=9_000_000)
    report = run(first[LAYOUT.bronze].to_batches(), again)
    second = read_back(tmp_path / "again", report)
    assert LAYOUT.bronze not in second
    assert places(second) == places(first)
    for table in first.keys() - {LAYOUT.bronze, LAYOUT.quarantine, LAYOUT.deferred}:
        assert second[table].equals(first[table])
    silver = second["silver_rummy_events"]
    assert set(silver["_topic_id"].to_pylist()) == {"id-of-t"}
    assert {moment.timestamp() for moment in silver["_landed_at"].to_pylist()} == {5.0}


@pytest.mark.parametrize("topics", [1, files.MOST_SHARED, files.MOST_SHARED + 1, 100])
def test_topics_are_text_in_every_file_however_many_a_task_has(tmp_path: Path, topics: int) -> None:
    """Kafka's records first, with topics whose id is not known, then the same records from bronze."""
    names = [f"topic-{n:03}" for n in range(topics)]
    ids = {name: f"id-of-{name}" for name in names[::2]}
    batches = [
        batch_of([event(OLD, "rummy"), b"", event(NEW, "Go_Fish")] * 50, first, topic=dice.choices(names, k=150))
        for dice, first in ((random.Random(n), 150 * n) for n in range(3))
    ]
    first = run(batches, plan_for(tmp_path / "first", topic_ids=ids))
    bronze = read_back(tmp_path / "first", first)[LAYOUT.bronze]
    storage, keys = LocalStorage(tmp_path / "first"), [f"{LAYOUT.bronze}/{e.path}" for e in first.files[LAYOUT.bronze]]
    share = Share(storage, tuple(find_row_groups(storage, keys, None)), None, 100, 1 << 20)
    again = run(list(share.read()), plan_for(tmp_path / "again", write_bronze=False, topic_ids={}))
    truth = {150 * n + row: topic for n, b in enumerate(batches) for row, topic in enumerate(b["topic"].to_pylist())}
    assert dict(zip(bronze["offset"].to_pylist(), bronze["topic"].to_pylist(), strict=True)) == truth
    for report, folder in ((first, tmp_path / "first"), (again, tmp_path / "again")):
        tables = read_back(folder, report)
        for name in ("silver_rummy_events", "silver_go_fish_events", LAYOUT.quarantine):
            own = "" if name == LAYOUT.quarantine else "_"
            found = pl.DataFrame(tables[name]).select(f"{own}offset", f"{own}topic", f"{own}topic_id").rows()
            kind = 1 if own == "" else int("fish" in name) * 2
            assert sorted(found) == [(o, truth[o], ids.get(truth[o])) for o in range(450) if o % 3 == kind]
            (entry,) = report.files[name]
            stats = json.loads(entry.stats)
            shown = {topic for _, topic, _ in found}
            assert (stats["minValues"][f"{own}topic"], stats["maxValues"][f"{own}topic"]) == (min(shown), max(shown))
            assert {f["type"] for f in json.loads(entry.schema)["fields"] if "topic" in f["name"]} == {"string"}
    assert first.spans == again.spans


@pytest.mark.parametrize("schema_id", [2**31 - 1, 2**31, 2**32 - 1])
def test_ids_at_the_end_of_the_range(tmp_path: Path, schema_id: int) -> None:
    report = run([batch_of([frame(schema_id, b"x")])], plan_for(tmp_path, defer_new=True))
    assert (report.deferred, report.quarantine) == ((1, {}) if schema_id < 2**31 else (0, {"schema_unknown": 1}))
    assert read_back(tmp_path, report)[LAYOUT.bronze]["schema_id"].to_pylist() == [schema_id]


def test_no_batches_and_empty_batches_write_nothing(tmp_path: Path) -> None:
    for batches in ([], [batch_of([])]):
        report = run(batches, plan_for(tmp_path))
        assert replace(report, steps={}) == Report()
    assert not list(tmp_path.rglob("*"))


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "message indexes": lambda number: frame(OLD, b"", (number, 1)),
    "routing values": lambda number: event(OLD, f"../{number}"),
    "new routing values": lambda number: event(OLD, f"game{number}"),
    "schema ids": lambda number: frame(1000 + number, b"x"),
}


@pytest.mark.parametrize("kind", HOSTILE.values(), ids=HOSTILE)
def test_thousands_of_distinct_kinds_in_one_batch_cost_little(tmp_path: Path, kind: Callable[[int], bytes]) -> None:
    values = [kind(number) for number in range(5000)]
    batch = batch_of(values)
    run([batch_of(values[:1])], plan_for(tmp_path / "warm"))
    lakes = map(str, itertools.count())

    def take() -> None:
        assert run([batch], plan_for(tmp_path / next(lakes))).bronze == len(values)

    assert least_cpu(take) < 1


def test_the_readme_lists_the_steps_in_their_order() -> None:
    readme = (Path(task.__file__).parents[2] / "README.md").read_text()
    named = re.findall(r"^\| (\w+) \|", readme, re.MULTILINE)
    first = named.index("frame")
    assert named[first : first + len(task.STEPS)] == [step.__name__ for step in task.STEPS]


def test_many_tables_get_a_file_each(tmp_path: Path) -> None:
    admitted = {f"game{number}": f"game{number}" for number in range(100)}
    messages = dict.fromkeys(admitted, ("Event",))
    values = [event(OLD, name) for name in admitted for _ in range(3)]
    report = run([batch_of(values)], plan_for(tmp_path, routing=replace(ROUTING, admitted=admitted, messages=messages)))
    assert len(report.files) == 101
    assert {len(files) for files in report.files.values()} == {1}
    assert report.balance() == (300, 300)
