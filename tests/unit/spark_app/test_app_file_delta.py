"""A Delta table as a source: what its log may say of deleted rows and of names."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.intake.columns_of_source import SourceColumns
from spark_app.intake.delta_export import DeltaListing
from spark_app.intake.planning import Planner
from spark_app.intake.source_folder import DiskFolder
from spark_app.intake.taken_files import TakenFiles
from spark_app.model.errors import ContractError
from spark_app.settings.models import Batch
from spark_app.storage.local import LocalStorage
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
    return DeltaListing(DiskFolder(str(tmp_path / "in")), TakenFiles(storage, "taken"), storage, "taken", -1)


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
    ledger, folder = TakenFiles(storage, "taken"), DiskFolder(str(table))
    followed = DeltaListing(folder, ledger, storage, "taken", -1)
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
    assert DeltaListing(folder, ledger, storage, "taken", -1).version == 2


def test_a_name_that_is_no_text_is_named(table: Path, tmp_path: Path) -> None:
    followed = listing(tmp_path)
    commit(table, 1, {"add": {**added(table), "path": "a\ud800.parquet"}})
    assert len(followed.find([], lambda listed: False)) == 1
    assert list(followed.gone) == [r"a\ud800.parquet"]
