"""A folder to which a stranger writes: nothing outside it is read, nothing blocks, and what is no file is named."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_app.lake.files import beneath
from spark_app.lake.files.beneath import NotRegular
from spark_app.lake.files.local import LocalStorage
from spark_app.model.errors import ContractError
from spark_app.sources.files.delta_export import DeltaListing
from spark_app.sources.files.folder import DiskFolder, Listed
from spark_app.sources.files.ingested import IngestedFiles
from spark_app.sources.files.scanning import PARQUET, Unreadable, scan
from tests.stores.test_stores_file_planning import LINES, VALUES, Taking
from tests.support.exports import DiskExports

SECRET = b'{"value": "c2VjcmV0"}\n'


@pytest.fixture
def exports(tmp_path: Path) -> DiskExports:
    return DiskExports(tmp_path / "in")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.json"
    path.write_bytes(SECRET)
    return path


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def relative_link(path: Path, secret: Path) -> None:
    path.symlink_to(os.path.relpath(secret, path.parent))


def fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def bound(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def zeros(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = {
    link: "it is a link",
    relative_link: "it is a link",
    zeros: "it is a link",
    fifo: "it is a FIFO",
    bound: "it is a socket",
}


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", ["a.json", "a.parquet", "d/a.jsonl.gz"])
def test_what_is_no_file_is_named_and_the_others_are_ingested(
    tmp_path: Path, exports: DiskExports, secret: Path, make: Callable[[Path, Path], None], name: str
) -> None:
    exports.write("d/b.json", LINES)
    make(exports.folder / name, secret)
    taking = Taking(tmp_path, exports)
    assert taking.take() == ["d/b.json"]
    assert taking.take() == []
    assert taking.values == VALUES
    assert list(taking.planner.broken) == [name]
    assert taking.planner.broken[name].startswith(KINDS[make])


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path, exports: DiskExports, secret: Path) -> None:
    exports.write("b.json", LINES)
    (exports.folder / "d").symlink_to(secret.parent)
    taking = Taking(tmp_path, exports)
    assert taking.take() == ["b.json"]
    folder = DiskFolder(str(exports.folder))
    assert folder.look("d/secret.json") is None
    with pytest.raises(NotADirectoryError):
        folder.get("d/secret.json")
    assert DiskFolder(str(exports.folder), links=True).get("d/secret.json") == SECRET


@pytest.mark.parametrize("swapped", [link, fifo], ids=["link", "fifo"])
def test_a_file_that_is_swapped_after_it_was_listed_is_not_read(
    exports: DiskExports, secret: Path, swapped: Callable[[Path, Path], None]
) -> None:
    exports.write("a.json", SECRET)
    folder = DiskFolder(str(exports.folder))
    listed = folder.look("a.json")
    assert listed is not None
    (exports.folder / "a.json").unlink()
    swapped(exports.folder / "a.json", secret)
    with pytest.raises(NotRegular):
        folder.open_input(listed)


def test_a_file_that_is_swapped_while_it_is_opened_is_not_read(
    exports: DiskExports, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.write("a.json", SECRET)
    path, check = exports.folder / "a.json", beneath.check_regular

    def swap(found: os.stat_result) -> None:
        check(found)
        if not path.is_symlink():
            path.unlink()
            path.symlink_to(secret)

    monkeypatch.setattr(beneath, "check_regular", swap)
    with pytest.raises(OSError, match="symbolic links"):
        DiskFolder(str(exports.folder)).get("a.json")


def test_links_are_followed_where_the_settings_say_so(tmp_path: Path, exports: DiskExports, secret: Path) -> None:
    link(exports.folder / "a.json", secret)
    folder = DiskFolder(str(exports.folder), links=True)
    assert [one.key for one in folder.files()] == ["a.json"]
    assert folder.get("a.json") == SECRET


@pytest.mark.parametrize("mode", [0o000, 0o300])
def test_a_folder_that_cannot_be_listed_is_named_and_passed_over(
    tmp_path: Path, exports: DiskExports, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.write("b.json", LINES)
    exports.write("d/c.json", LINES)
    scandir = os.scandir

    def refuse(path: str) -> object:  # as for any user but root
        if str(path).endswith("/d"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    taking = Taking(tmp_path, exports)
    assert taking.take() == ["b.json"]
    assert taking.planner.broken == {"d/": "it cannot be listed: Permission denied"}


def test_folders_deeper_than_a_path_may_be_are_named(exports: DiskExports) -> None:
    exports.write("b.json", LINES)
    at = os.open(exports.folder, os.O_DIRECTORY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=at)
        at = os.open("d" * 200, os.O_DIRECTORY, dir_fd=at)
    folder = DiskFolder(str(exports.folder))
    assert [one.key for one in folder.files()] == ["b.json"]
    assert list(folder.refused.values()) == ["it cannot be listed: File name too long"]


def test_a_sparse_file_is_refused_by_its_end(exports: DiskExports) -> None:
    path = exports.folder / "a.parquet"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    folder = DiskFolder(str(exports.folder))
    listed = folder.look("a.parquet")
    assert listed is not None
    began = time.process_time()
    with pytest.raises(Unreadable):
        scan(folder, listed, PARQUET, Taking(exports.folder.parent, exports).columns)
    assert time.process_time() - began < 5  # to read it would take minutes


ADD = '{"add": {"path": "a.parquet", "dataChange": true}}'


def listing(tmp_path: Path, folder: DiskFolder) -> DeltaListing:
    storage = LocalStorage(tmp_path / "lake")
    storage.create_folders("taken")
    (tmp_path / "lake" / "taken" / "began.json").write_text('{"version": 0}')
    one = DeltaListing.__new__(DeltaListing)
    one._folder, one._ingested, one._storage = folder, IngestedFiles(storage, "taken"), storage
    one._columns, one._known, one._due, one.gone = ("value",), {}, {}, {}
    return one


ODD = (
    *("{", "[1]", "7", '"x"', "\0", "[" * 100_000, '{"a":' * 100_000),
    *('{"add": 7}', '{"add": {}}', '{"add": {"path": null}}', '{"add": {"path": "a.parquet", "deletionVector": 7}}'),
    *('{"remove": [1]}', '{"metaData": {"schemaString": "7"}}', '{"metaData": {"schemaString": "["}}'),
)


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:24])
def test_an_entry_of_a_log_that_is_none_is_refused_in_one_line(tmp_path: Path, exports: DiskExports, text: str) -> None:
    exports.write(f"_delta_log/{1:020d}.json", f"{ADD}\n{text}\n".encode())
    with pytest.raises(ContractError, match="version 1 of the log cannot be read") as refused:
        listing(tmp_path, DiskFolder(str(exports.folder)))._read_version(1)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("path", ["..%2f..%2fetc%2fx.parquet", "/etc/x.parquet", "a\\u0000.parquet"])
def test_a_path_of_a_log_that_leaves_the_folder_is_named(tmp_path: Path, exports: DiskExports, path: str) -> None:
    exports.write(f"_delta_log/{1:020d}.json", f'{{"add": {{"path": "{path}"}}}}\n'.encode())
    one = listing(tmp_path, DiskFolder(str(exports.folder)))
    one._read_version(1)
    assert (one._due, len(one.gone)) == ({}, 1)


@pytest.mark.parametrize("make", [fifo, link], ids=["fifo", "link"])
@pytest.mark.parametrize("name", [f"{1:020d}.json", "_last_checkpoint", f"{0:020d}.checkpoint.parquet"])
def test_a_log_with_something_else_than_files_is_not_opened(
    tmp_path: Path, exports: DiskExports, secret: Path, make: Callable[[Path, Path], None], name: str
) -> None:
    exports.write(f"_delta_log/{0:020d}.json", json.dumps({"protocol": {}}).encode())
    make(exports.folder / "_delta_log" / name, secret)
    one = listing(tmp_path, DiskFolder(str(exports.folder)))
    with pytest.raises(ContractError, match="ingest the table into a new lake, or restore its log"):
        one._table()
    if name.endswith("1.json"):
        with pytest.raises(ContractError, match="version 1 of the log cannot be read"):
            one._read_version(1)


def test_a_fifo_that_a_log_names_does_not_block(exports: DiskExports, secret: Path) -> None:
    fifo(exports.folder / "part.parquet", secret)
    folder = DiskFolder(str(exports.folder))
    with pytest.raises(Unreadable, match="it is a FIFO"):
        scan(folder, Listed("part.parquet", 0, 0, 0), PARQUET, Taking(exports.folder.parent, exports).columns)
