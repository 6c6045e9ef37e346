"""A Delta table as a source: what its log may say of deleted rows, of names, and of another table."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.lake.files.local import LocalStorage
from spark_app.model.errors import ContractError
from spark_app.settings.models import Batch
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.delta_export import DeltaListing
from spark_app.sources.files.folder import DiskFolder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.sources.files.planning import Planner
from tests.support.file_sources import framed, parquet_table

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
A85 = "".join(map(chr, range(33, 118)))


def inline(rows: tuple[int, int]) -> dict[str, Any]:
    """A deletion vector in the log: a 64-bit bitmap of Roaring with one array of two rows."""
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, *rows)
    text = base64.a85encode(bitmap).decode().replace("z", "!!!!!").translate(str.maketrans(A85, Z85))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 2}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "in", parquet_table(framed(3)))
    return tmp_path / "in"


def added(table: Path, version: int = 0) -> dict[str, Any]:
    lines = (table / f"_delta_log/{version:020d}.json").read_text().splitlines()
    (found,) = [action["add"] for action in map(json.loads, lines) if action.get("add")]
    return found  # type: ignore[no-any-return]


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / f"_delta_log/{version:020d}.json").write_text(text)


def allow_marks(table: Path) -> dict[str, Any]:
    feature = ["deletionVectors"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": feature, "writerFeatures": feature}}


def mark(table: Path, version: int, vector: dict[str, Any]) -> None:
    """Delete two rows as Spark does with deletion vectors."""
    add = added(table)
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    commit(table, version, allow_marks(table), {"remove": gone}, {"add": {**add, "deletionVector": vector}})


def listing(tmp_path: Path) -> DeltaListing:
    storage = LocalStorage(tmp_path / "lake")
    folder, columns = DiskFolder(str(tmp_path / "in")), ["value", "key", "headers", "timestamp"]
    return DeltaListing(folder, IngestedFiles(storage, "taken"), storage, "taken", -1, columns)


def found(followed: DeltaListing) -> int:
    return len(followed.find([], lambda listed: False))


def test_a_table_whose_first_version_marks_rows_as_deleted_is_refused_until_they_are_gone(
    table: Path, tmp_path: Path
) -> None:
    mark(table, 1, inline((0, 2)))
    assert [kept for batch in DeltaTable(table).deletion_vectors() for kept in batch["selection_vector"].to_pylist()]
    for _ in range(2):
        with pytest.raises(ContractError, match="version 1 marks rows as deleted"):
            listing(tmp_path)
    write_deltalake(table, parquet_table(framed(1)), mode="append")  # the marks stay
    with pytest.raises(ContractError, match=r"version 2 marks rows as deleted.*REORG"):
        listing(tmp_path)
    gone = {"path": added(table)["path"], "deletionTimestamp": 1, "dataChange": False}
    commit(table, 3, {"remove": {**gone, "deletionVector": inline((0, 2))}})
    found = listing(tmp_path).find([], lambda listed: False)
    assert [listed.key for listed, _ in found] == [added(table, 2)["path"]]


def test_marks_that_cannot_be_read_are_refused(table: Path, tmp_path: Path) -> None:
    mark(table, 1, {**inline((0, 2)), "storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1})
    with pytest.raises(ContractError, match="version 1 marks rows as deleted"):
        listing(tmp_path)


def test_a_table_that_may_mark_rows_and_does_not_is_taken(table: Path, tmp_path: Path) -> None:
    commit(table, 1, allow_marks(table))
    assert len(listing(tmp_path).find([], lambda listed: False)) == 1


def test_a_list_that_lacks_a_version_ends_before_it(table: Path, tmp_path: Path) -> None:
    followed = listing(tmp_path)
    for version in (1, 3):
        commit(table, version, {"add": {**added(table), "path": f"{version}.parquet"}})
        (table / f"{version}.parquet").write_bytes(b"")
    assert len(followed.find([], lambda listed: False)) == 2
    commit(table, 2, {"add": {**added(table), "path": "2.parquet"}})
    (table / "2.parquet").write_bytes(b"")
    assert [due[0].key for due in followed.find([], lambda listed: False)][1:] == [f"{n}.parquet" for n in (1, 2, 3)]


def test_a_file_without_rows_does_not_hold_the_cursor(table: Path, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "lake")
    ledger, folder = IngestedFiles(storage, "taken"), DiskFolder(str(table))
    followed = DeltaListing(folder, ledger, storage, "taken", -1, [])
    planner = Planner(folder, followed, SourceColumns("value", "key", "headers", "timestamp"), Batch(), None)
    pq.write_table(parquet_table(framed(1)).slice(0, 0), table / "none.parquet")
    commit(table, 1, {"add": {**added(table), "path": "none.parquet"}})
    write_deltalake(table, parquet_table(framed(2)), mode="append")
    end = 0
    while (plan := planner.plan(end)) is not None:
        ledger.add(ledger.unit + 1, plan.files)
        planner.committed(plan)
        end = plan.end
    assert (end, planner.waiting, planner.broken, followed.version) == (5, 0, {}, 2)
    assert DeltaListing(folder, ledger, storage, "taken", -1, []).version == 2


def test_a_name_that_is_no_text_is_named(table: Path, tmp_path: Path) -> None:
    followed = listing(tmp_path)
    commit(table, 1, {"add": {**added(table), "path": "a\ud800.parquet"}})
    assert len(followed.find([], lambda listed: False)) == 1
    assert list(followed.gone) == [r"a\ud800.parquet"]


def take_all(followed: DeltaListing) -> None:
    """All that is due counts as taken."""
    due = [listed for listed, _ in followed.find([], lambda listed: False)]
    files = [IngestedFile(one.key, one.size, one.changed, one.time, "", 0, 1, 1) for one in due]
    followed._ingested.add(followed._ingested.unit + 1, files)
    followed.note_ingested(files)


def create_again(table: Path, versions: int) -> None:
    """Another table at the same path."""
    shutil.rmtree(table)
    for _ in range(versions):
        write_deltalake(table, parquet_table(framed(1)), mode="append")


ANOTHER = "another Delta table is there"


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_a_table_that_was_created_again_is_refused_by_the_next_start(
    table: Path, tmp_path: Path, versions: int
) -> None:
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    take_all(listing(tmp_path))
    assert listing(tmp_path).version == 1
    create_again(table, versions)
    with pytest.raises(ContractError, match=ANOTHER):
        listing(tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_that_is_created_again_under_a_running_app_is_refused_by_its_next_version(
    table: Path, tmp_path: Path, restarts: bool
) -> None:
    followed = listing(tmp_path)
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    take_all(followed)
    followed = listing(tmp_path) if restarts else followed
    create_again(table, 2)
    assert found(followed) == 0  # without news nothing more is asked for
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    with pytest.raises(ContractError, match=ANOTHER):
        found(followed)


def test_a_log_that_was_restored_is_the_same_table(table: Path, tmp_path: Path) -> None:
    followed = listing(tmp_path)
    take_all(followed)
    shutil.copytree(table, tmp_path / "copy")
    shutil.rmtree(table)
    assert found(followed) == 0
    shutil.copytree(tmp_path / "copy", table, copy_function=shutil.copyfile)
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    assert (found(followed), found(listing(tmp_path))) == (1, 1)


def test_a_round_without_news_is_one_list(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed, asked = listing(tmp_path), list[str]()
    take_all(followed)
    names, look = DiskFolder.names, DiskFolder.look
    monkeypatch.setattr(DiskFolder, "names", lambda own, *given: asked.append("names") or names(own, *given))
    monkeypatch.setattr(DiskFolder, "look", lambda own, key: asked.append("look") or look(own, key))
    assert (found(followed), asked) == (0, ["names"])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_writer_may_change_the_id_of_its_table(table: Path, tmp_path: Path, restarts: bool) -> None:
    """The version goes on with the log that was read: old writers do this when they add a column."""
    followed = listing(tmp_path)
    take_all(followed)
    metadata = metadata_of(table)
    commit(table, 1, {"metaData": metadata})
    commit(table, 2, {"metaData": {**metadata, "id": "other"}})
    followed = listing(tmp_path) if restarts else followed
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    take_all(followed)
    assert (followed.version, listing(tmp_path).version) == (3, 3)
    create_again(table, 5)
    with pytest.raises(ContractError, match=rf"{ANOTHER}.*than the one that was ingested \(other\)"):
        listing(tmp_path)


def test_a_lake_of_an_earlier_release_notes_the_table_at_its_next_start(table: Path, tmp_path: Path) -> None:
    take_all(listing(tmp_path))
    began = tmp_path / "lake/taken/began.json"
    began.write_text(json.dumps({"version": 0}))
    assert found(listing(tmp_path)) == 0
    assert json.loads(began.read_text()) == {"version": 0, "id": metadata_of(table)["id"]}
    create_again(table, 2)
    with pytest.raises(ContractError, match=ANOTHER):
        listing(tmp_path)


def test_a_start_without_a_log_goes_on_once_it_is_back(table: Path, tmp_path: Path) -> None:
    take_all(listing(tmp_path))
    (table / "_delta_log").rename(tmp_path / "log")
    followed = listing(tmp_path)
    assert found(followed) == 0
    (tmp_path / "log").rename(table / "_delta_log")
    write_deltalake(table, parquet_table(framed(1)), mode="append")
    assert found(followed) == 1


def test_a_list_that_lacks_the_next_version_is_no_gap_if_its_entry_is_there(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = listing(tmp_path)
    take_all(followed)
    for _ in range(2):
        write_deltalake(table, parquet_table(framed(1)), mode="append")
    names = DiskFolder.names
    monkeypatch.setattr(
        DiskFolder, "names", lambda own, *given: [name for name in names(own, *given) if name[:20] != f"{1:020d}"]
    )
    assert found(followed) == 2
    (table / f"_delta_log/{1:020d}.json").unlink()
    with pytest.raises(ContractError, match="the log has no version 1 any more"):
        found(listing(tmp_path))


def metadata_of(table: Path) -> dict[str, Any]:
    lines = (table / f"_delta_log/{0:020d}.json").read_text().splitlines()
    (said,) = [action["metaData"] for action in map(json.loads, lines) if action.get("metaData")]
    return said  # type: ignore[no-any-return]


def test_a_column_that_is_in_no_file_is_refused_by_name(tmp_path: Path) -> None:
    rows = parquet_table(framed(2)).append_column("day", pa.array(["a", "b"]))
    write_deltalake(tmp_path / "in", rows, partition_by=["key"])
    with pytest.raises(ContractError, match="version 0 of the table the column key is a partition column"):
        listing(tmp_path)
    shutil.rmtree(tmp_path / "in")
    write_deltalake(tmp_path / "in", rows, partition_by=["day"])
    assert found(listing(tmp_path)) == 2


def mapped(table: Path, physical: str) -> dict[str, Any]:
    """The table's metadata with column mapping, where the values have this name in the files."""
    metadata = metadata_of(table)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        name = physical if field["name"] == "value" else field["name"]
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
    return {**metadata, "schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}}


def test_a_column_with_another_name_in_the_files_is_refused_by_name(table: Path, tmp_path: Path) -> None:
    followed = listing(tmp_path)
    commit(table, 1, {"metaData": mapped(table, "value")})
    assert found(followed) == 1
    commit(table, 2, {"metaData": mapped(table, "col-7")})
    with pytest.raises(ContractError, match="version 2 of the table the column value has the name col-7 in the files"):
        found(followed)
    (tmp_path / "lake/taken/began.json").unlink()
    with pytest.raises(ContractError, match="the column value has the name col-7 in the files"):
        listing(tmp_path)
    assert not (tmp_path / "lake/taken/began.json").exists()
