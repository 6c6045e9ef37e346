"""The versions of reference tables that are in force, while the tables change, break and go."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.reference_files import KEY, read_copy
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.settings.silver import Reference
from spark_app.tables.references import source_table
from spark_app.tables.references.tables import ReferenceTables
from tests.support.references import section, write


class Stand:
    """A lake's folder, a table, and what follows it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lake = Lake(folder / "lake")
        self.storage = self.lake.storage
        self.path = write(folder, ("ann", "FR", 1), ("bob", None, 2))

    def follow(self, **settings: Any) -> ReferenceTables:
        own = section(self.path, **settings)["players"]
        return ReferenceTables(self.lake, {"players": Reference(**own)})

    def rows(self, tables: ReferenceTables) -> list[dict[str, Any]]:
        return read_copy(self.storage, "players", tables.versions()["players"].content).to_pylist()

    def copies(self) -> list[str]:
        return self.storage.list("_protolake/references/players")


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


ANN, BOB = {KEY: "ann", "country": "FR", "tier": 1}, {KEY: "bob", "country": None, "tier": 2}


def test_a_new_version_is_used(stand: Stand) -> None:
    tables = stand.follow()
    tables.versions()
    assert stand.rows(tables) == [ANN, BOB]
    write(stand.folder, ("ann", "FR", 7))
    assert stand.rows(tables) == [ANN | {"tier": 7}]
    found = tables.describe()["players"]
    assert (found["rows"], found["version"].split(" ")[0], found["refused"]) == (1, "1", None)


def test_a_table_is_not_read_before_it_is_due(stand: Stand) -> None:
    tables = stand.follow(refresh_s=3600)
    tables.versions()
    write(stand.folder, ("ann", "FR", 7))
    assert stand.rows(tables) == [ANN, BOB]


def test_the_same_rows_are_the_same_version(stand: Stand) -> None:
    tables = stand.follow()
    first = tables.versions()["players"].content
    write(stand.folder, ("bob", None, 2), ("ann", "FR", 1))
    version = tables.versions()["players"]
    assert (version.content, version.source[:2]) == (first, "1 ")
    assert len(stand.copies()) == 1


def test_what_cannot_be_joined_leaves_the_last_good_version(stand: Stand, capfd: pytest.CaptureFixture[str]) -> None:
    tables = stand.follow()
    tables.versions()
    write(stand.folder, ("ann", "FR", 1), ("ann", "IT", 2))
    for _ in range(3):
        assert stand.rows(tables) == [ANN, BOB]
    assert tables.describe()["players"]["refused"] == "its key player is not unique: keys with several rows: 1"
    assert capfd.readouterr().err.count("reference table refused") == 1
    shutil.rmtree(stand.path)
    assert stand.rows(tables) == [ANN, BOB]
    assert "no Delta table and no Parquet file" in tables.describe()["players"]["refused"]
    again = stand.follow()
    again.versions()
    assert stand.rows(again) == [ANN, BOB]
    write(stand.folder, ("cy", "IT", 3))
    assert stand.rows(again) == [{KEY: "cy", "country": "IT", "tier": 3}]
    assert again.describe()["players"]["refused"] is None


def test_a_column_keeps_its_type(stand: Stand) -> None:
    tables = stand.follow()
    tables.versions()
    write(stand.folder, ("ann", "FR", "gold"), kind=pa.string())
    assert stand.rows(tables) == [ANN, BOB]
    why = "its column tier is string now, and was int64: set another prefix to take it"
    assert tables.describe()["players"]["refused"] == why
    again = stand.follow()
    assert stand.rows(again) == [ANN, BOB]
    other = stand.follow(prefix="player_")
    assert stand.rows(other) == [{KEY: "ann", "player_country": "FR", "player_tier": "gold"}]


def test_a_key_keeps_its_type(stand: Stand) -> None:
    tables = stand.follow()
    tables.versions()
    write(stand.folder, (7, "FR", 1), key=pa.int64())
    assert stand.rows(tables) == [ANN, BOB]
    assert tables.describe()["players"]["refused"].startswith("its column player is int64 now, and was string")


def test_a_first_start_needs_the_table(stand: Stand) -> None:
    shutil.rmtree(stand.path)
    with pytest.raises(ConfigurationError, match=f"^reference.players: {stand.path}: there is no Delta table"):
        stand.follow().versions()


def test_other_settings_need_the_table_again(stand: Stand) -> None:
    stand.follow().versions()
    shutil.rmtree(stand.path)
    with pytest.raises(ConfigurationError, match="there is no Delta table"):
        stand.follow(columns=["country"]).versions()


def test_old_copies_are_removed_and_a_reader_of_one_goes_on(stand: Stand) -> None:
    tables = stand.follow(keep_versions=2)
    first = tables.versions()["players"].content
    rows = read_copy(stand.storage, "players", first)
    stand.storage.replace("_protolake/references/players/left by a kill.arrow", b"")
    for tier in range(3):
        write(stand.folder, ("ann", "FR", tier))
        tables.versions()
    assert len(stand.copies()) == 2
    assert rows.to_pylist() == [ANN, BOB]
    with pytest.raises(FileNotFoundError):
        read_copy(stand.storage, "players", first)


def test_a_lost_copy_is_made_again_and_a_damaged_list_is_named(stand: Stand) -> None:
    tables = stand.follow()
    content = tables.versions()["players"].content
    for damage in (
        lambda key: stand.storage.delete(key),
        lambda key: stand.storage.replace(key, stand.storage.get(key).replace(b"FR", b"IT")),
    ):
        damage(f"_protolake/references/players/{content}.arrow")
        assert stand.rows(stand.follow()) == [ANN, BOB]
    stand.storage.replace("_protolake/references/players.json", b"{")
    with pytest.raises(ContractError, match="damaged"):
        stand.follow().versions()


def test_a_full_disk_leaves_the_last_good_version(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = stand.follow()
    tables.versions()
    write(stand.folder, ("ann", "FR", 7))

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "replace", full)
        assert stand.rows(tables) == [ANN, BOB]
    assert tables.describe()["players"]["refused"] == "its copy cannot be written (No space left on device)"
    assert stand.rows(tables) == [ANN | {"tier": 7}]


def test_a_table_that_does_not_answer_delays_one_unit(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    version = source_table.SourceTable.version
    tables = stand.follow()
    tables.versions()
    monkeypatch.setattr("spark_app.tables.references.tables.WAIT_S", 2.0)
    monkeypatch.setattr(source_table.SourceTable, "version", lambda self: answers.wait(120) and version(self))
    write(stand.folder, ("ann", "FR", 7))
    began = time.monotonic()
    for _ in range(20):
        assert stand.rows(tables) == [ANN, BOB]
    assert time.monotonic() - began < 30  # 40 s if each unit waited
    answers.set()
    deadline = time.monotonic() + 10
    while stand.rows(tables) == [ANN, BOB] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stand.rows(tables) == [ANN | {"tier": 7}]


def test_only_a_kept_table_in_force_is_named(stand: Stand) -> None:
    tables = stand.follow()
    assert tables.describe() == {"players": {"rows": 0, "version": None, "refused": None}}
