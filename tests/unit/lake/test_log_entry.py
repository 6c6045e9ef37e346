"""Entries that the app writes into the tables' logs itself: every reader must take them for its own kind."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake

from spark_app.lake.delta import log as delta_log
from spark_app.lake.delta import parquet as files
from spark_app.lake.delta import table_handles
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.settings.storing import LakeSettings
from tests.chaos.units import ingest_unit, open_lake
from tests.support.delta_log import read_rows, replay
from tests.support.units import open_committer

TABLES = ["bronze_events", "silver_a_events", "silver_b_events"]
SILVER = TABLES[1]
NTZ = pa.timestamp("us")


class Running:
    """An app that goes on without a restart."""

    def __init__(self, folder: Path, settings: LakeSettings | None = None):
        self.lake: Lake = open_lake(folder)
        self.manifests: Manifests
        self.committer: TableCommitter
        self.manifests, self.committer = open_committer(self.lake, settings)

    def take(self, units: int = 1, **columns: list[str]) -> None:
        for _ in range(units):
            number = self.manifests.last + 1
            rows = {name: pa.table({"x": [number], **columns}) for name in TABLES}
            rows[TABLES[0]] = pa.table({"x": [number] * (len(TABLES) - 1)})
            manifest = ingest_unit(self.lake, number, rows)
            self.manifests.commit(manifest)
            self.committer.apply(manifest)

    def open(self, name: str = SILVER) -> DeltaTable:
        return DeltaTable(str(self.lake.path(name)))

    def units(self, name: str = SILVER) -> list[int]:
        """As three readers see them."""
        folder = self.lake.path(name)
        found = sorted(pl.read_delta(str(folder))["x"].to_list())
        assert sorted(self.open(name).to_pyarrow_table()["x"].to_pylist()) == found
        assert sorted(read_rows(folder, replay(folder))["x"].to_pylist()) == found
        return found


def test_an_entry_says_what_the_unit_did(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(3)
    manifest = app.manifests.read(3)
    log = app.lake.path(delta_log.log_key(SILVER))
    info, add, transaction = map(json.loads, (log / f"{2:020d}.json").read_text().splitlines())
    assert {"protolake.sequence": 3, "protolake.digest": manifest.digest}.items() <= info["commitInfo"].items()
    [entry] = manifest.tables[SILVER].adds
    assert (add["add"]["path"], add["add"]["size"], add["add"]["stats"]) == (entry.path, entry.size, entry.stats)
    assert transaction["txn"] == {"appId": app.lake.identity(), "version": 3}
    actions = app.open().get_add_actions(flatten=True)
    assert (sorted(actions["num_records"].to_pylist()), sorted(actions["max.x"].to_pylist())) == ([1] * 3, [1, 2, 3])
    assert [path.name for path in log.iterdir() if path.name.startswith(".")] == []


def test_checkpoints_are_made_and_not_of_all_tables_at_once(tmp_path: Path) -> None:
    app = Running(tmp_path, LakeSettings(checkpoint_every=4))
    app.take(17)
    app.committer.tables.wait_for_checkpoints()
    made = {}
    for name in TABLES:
        made[name] = sorted(delta_log.versions(app.lake.storage, name, ".checkpoint.parquet"))
        assert len(made[name]) == 4
        assert {later - earlier for earlier, later in zip(made[name], made[name][1:], strict=False)} == {4}
        assert app.units(name) == sorted([*range(1, 18)] * (2 if name == TABLES[0] else 1))
        assert replay(app.lake.path(name)).transactions == {app.lake.identity(): 17}
    assert len({versions[0] for versions in made.values()}) > 1
    assert open_committer(app.lake)[1].redo() == 0


def test_a_table_waits_for_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[tuple[int, int]] = []

    def make_slowly(_: table_handles.Tables, name: str) -> None:
        table = app.open(name)
        time.sleep(0.1)
        table.create_checkpoint()
        made, entries = (delta_log.versions(app.lake.storage, name, kind) for kind in (".checkpoint.parquet", ".json"))
        ends.append((max(made), max(entries)))

    monkeypatch.setattr(table_handles.Tables, "_make_checkpoint", make_slowly)
    app = Running(tmp_path, LakeSettings(checkpoint_every=2))
    app.take(7)
    app.committer.close()
    assert len(ends) > 2 * len(TABLES)
    assert [checkpoint for checkpoint, _ in ends] == [newest for _, newest in ends]
    assert app.units() == [*range(1, 8)]


def test_a_checkpoint_that_fails_ends_the_app_at_the_next_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: table_handles.Tables, name: str) -> None:
        raise OSError("the disk says no")

    app = Running(tmp_path, LakeSettings(checkpoint_every=3))
    with monkeypatch.context() as patch:
        patch.setattr(table_handles.Tables, "_make_checkpoint", fail)
        with pytest.raises(OSError, match="the disk says no"):
            app.take(9)
    manifests, committer = open_committer(app.lake)
    assert committer.redo() == 1
    assert app.units() == [*range(1, manifests.last + 1)]


def text_column(name: str) -> Field:
    return Schema.from_arrow(pa.schema([(name, pa.string())])).fields[0]


def add_rows(app: Running) -> None:
    write_deltalake(str(app.lake.path(SILVER)), pa.table({"x": [100]}), mode="append")


def delete_rows(app: Running) -> None:
    app.open().delete("x = 2")


def add_column(app: Running) -> None:
    app.open().alter.add_columns([text_column("of others")])


@pytest.mark.parametrize(
    ("others", "found"), [(add_rows, [1, 2, 3, 4, 100]), (delete_rows, [1, 3, 4]), (add_column, [1, 2, 3, 4])]
)
def test_what_others_did_meanwhile_is_kept(
    tmp_path: Path, others: Callable[[Running], None], found: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    app = Running(tmp_path)
    app.take(2)
    others(app)
    app.take(2)
    assert app.units() == found
    assert app.open().transaction_version(app.lake.identity()) == 4
    assert capsys.readouterr().err.count("another writer has written to a table") == 1
    assert open_committer(app.lake)[1].redo() == 0


def test_columns_that_others_added_are_not_added_again(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(2)
    app.open().alter.add_columns([text_column("s")])
    app.take(2, s=["text"])
    assert app.units() == [1, 2, 3, 4]
    assert app.open().to_pyarrow_table().sort_by("x")["s"].to_pylist() == [None, None, "text", "text"]
    assert app.open().version() == 4


def test_a_table_that_wants_more_of_a_writer_is_refused(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(2)
    app.open().alter.add_constraint({"small": "x < 100"})
    with pytest.raises(ContractError, match=r"silver_a_events has delta.constraints.small"):
        app.take()
    assert app.units() == [1, 2]


def test_a_table_with_a_change_feed_is_written(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(2)
    app.open().alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    app.take(2)
    changes = pa.table(app.open().load_cdf(starting_version=3).read_all())
    assert (sorted(changes["x"].to_pylist()), app.units()) == ([3, 4], [1, 2, 3, 4])


def test_a_log_that_was_removed_under_a_running_app_is_not_begun_anew(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(3)
    log = app.lake.path(delta_log.log_key(SILVER))
    shutil.rmtree(log)
    with pytest.raises(ContractError, match="has changed unexpectedly"):
        app.take()
    assert not log.exists()


def test_what_a_kill_left_of_an_entry_is_in_nobodys_way(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(2)
    aside = tmp_path / "entry that was set aside"
    aside.write_text("as it was")
    left = app.lake.path(delta_log.log_key(SILVER)) / f".{2:020d}.json.tmp"
    left.hardlink_to(aside)
    assert app.units() == [1, 2]
    app.take()
    assert (app.units(), aside.read_text()) == ([1, 2, 3], "as it was")


def test_a_table_begins_as_one_of_delta_rs_does(tmp_path: Path) -> None:
    """Every type that a column can have, and the properties; both take the next commit of delta-rs."""
    columns = pa.schema(
        [
            ("whole", pa.int64()),
            ("big", pa.decimal128(20, 0)),
            ("real", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("inside", pa.list_(pa.struct([("a", pa.string()), ("m", pa.map_(pa.string(), pa.binary()))]))),
        ]
    )
    configuration: dict[str, str | None] = {"delta.checkpointInterval": "50"}
    rows = columns.empty_table()
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    write_deltalake(str(theirs), rows, configuration=configuration)
    storage = LocalStorage(tmp_path)
    add = files.write_file(storage, "ours", "x.parquet", rows, "zstd")
    begins = delta_log.create_table_actions(columns, configuration)
    delta_log.write_rows(storage, "ours", 0, [add], [], [("app", 1)], begins)
    begun = [DeltaTable(str(folder)) for folder in (theirs, ours)]
    for what in ("schema", "protocol"):
        assert len({str(getattr(table, what)()) for table in begun}) == 1
    found = [(table.metadata().configuration, table.metadata().partition_columns) for table in begun]
    assert found == [(configuration, [])] * 2
    assert begun[1].transaction_version("app") == 1
    one = pa.table({"whole": [1], "real": [0.5]})
    write_deltalake(begun[1], one, mode="append", schema_mode="merge")
    assert pl.read_delta(str(ours))["whole"].to_list() == [1]


@pytest.mark.parametrize("kind", [NTZ, pa.list_(NTZ), pa.map_(pa.string(), NTZ), pa.struct([("at", NTZ)])], ids=str)
def test_a_type_of_a_newer_protocol_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ContractError, match="time zone"):
        delta_log.create_table_actions(pa.schema([("at", kind)]), {})


def test_a_field_may_have_the_name_of_a_type(tmp_path: Path) -> None:
    app = Running(tmp_path)
    app.take(2, timestamp_ntz=["text"])
    assert app.units() == [1, 2]


def test_a_table_that_somebody_else_has_begun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look whether it is there and its first entry."""
    app = Running(tmp_path)
    append = delta_log.append

    def be_second(storage: LocalStorage, table: str, version: int, *rest: Any) -> None:
        if table == SILVER:
            monkeypatch.undo()
            write_deltalake(storage.uri(table), pa.table({"x": [100]}))
        append(storage, table, version, *rest)

    monkeypatch.setattr(delta_log, "append", be_second)
    app.take()
    app.take()
    assert app.units() == [1, 2, 100]
