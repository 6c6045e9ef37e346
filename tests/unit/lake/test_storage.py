"""What every storage of a lake must do. A further kind of storage is added to `storage` and has to pass the same."""

import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from tests.chaos.units import ingest_unit
from tests.support.examples import examples

NAMES = st.text("abc-._0", min_size=1, max_size=8).filter(lambda name: name[0] != "." and name.strip("."))


@pytest.fixture(params=[LocalStorage])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage:
    made: LocalStorage = request.param(tmp_path / "lake")
    return made


def test_lines_are_appended_and_a_torn_one_is_ended(storage: LocalStorage) -> None:
    storage.append("a/lines", b"one\n")
    storage.append("a/lines", b"tw")
    storage.append("a/lines", b"three\n")
    assert storage.get("a/lines") == b"one\ntw\nthree\n"


def test_a_private_file_is_closed_to_others(storage: LocalStorage) -> None:
    storage.replace("a/open", b"x")
    storage.put_if_absent("a/closed", b"x", private=True)
    assert (storage.is_open_to_others("a/open"), storage.is_open_to_others("a/closed")) == (True, False)


def test_a_file_has_its_content_size_and_time(storage: LocalStorage) -> None:
    assert (storage.exists("a/b"), storage.size("a/b"), storage.changed_at("a/b")) == (False, None, None)
    with pytest.raises(FileNotFoundError):
        storage.get("a/b")
    storage.replace("a/b", b"one")
    before = storage.changed_at("a/b")
    assert before is not None
    assert (storage.exists("a"), storage.exists("a/b"), storage.size("a/b"), storage.get("a/b")) == (
        True,
        True,
        3,
        b"one",
    )
    os.utime(storage.path("a/b"), ns=(0, before - 1))
    storage.replace("a/b", b"three", durable=False)
    after = storage.changed_at("a/b")
    assert (storage.get("a/b"), after is not None and after >= before) == (b"three", True)
    storage.delete("a/b", "a/never")
    assert storage.list("a") == []


def test_a_folder_is_listed_in_order_and_without_what_is_inside(storage: LocalStorage) -> None:
    for key in ("t/part-2", "t/part-10", "t/other", "t/inside/part-3", "u/part-1"):
        storage.replace(key, b"")
    assert storage.list("") == ["t", "u"]
    assert storage.list("t") == ["t/inside", "t/other", "t/part-10", "t/part-2"]
    assert storage.list("t", "part-") == ["t/part-10", "t/part-2"]
    assert storage.list("nothing") == storage.list("t/other") == []
    assert storage.within("t").list("inside") == ["inside/part-3"]


@given(st.sets(NAMES, max_size=6))
@examples(0.2)
def test_what_is_put_is_listed(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalStorage(folder)
        for name in names:
            storage.put_if_absent(f"f/{name}", name.encode())
        assert storage.list("f") == [f"f/{name}" for name in sorted(names)]
        assert [storage.get(key).decode() for key in storage.list("f")] == sorted(names)


@pytest.mark.parametrize("durable", [False, True])
def test_of_eight_that_create_a_file_one_does(storage: LocalStorage, durable: bool) -> None:
    """Each has a storage of its own, as tasks have."""
    together = threading.Barrier(8)

    def create(number: int) -> bytes | None:
        own = pickle.loads(pickle.dumps(storage))
        together.wait()
        try:
            own.put_if_absent("manifest", b"%d" % number * 1000, durable)
        except FileExistsError:
            return None
        return b"%d" % number * 1000

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            made = [content for content in pool.map(create, range(8)) if content is not None]
        assert made == [storage.get("manifest")]
        assert storage.list("") == ["manifest"]
        storage.delete("manifest")


def test_a_file_that_cannot_be_finished_is_removed(storage: LocalStorage) -> None:
    def write() -> None:
        with storage.put_file("t/part-1.parquet") as file:
            file.write(b"x" * 1_000_000)
            raise ValueError("no more rows")

    with pytest.raises(ValueError, match="no more rows"):
        write()
    assert storage.list("t") == []


def test_parquet_is_written_and_read(storage: LocalStorage) -> None:
    rows = pa.table({"x": list(range(1000))})
    for durable in (True, False):
        with storage.put_file("t/part-1.parquet", durable) as file:
            pq.write_table(rows, file)
        with storage.open_input("t/part-1.parquet") as source, pq.ParquetFile(source) as read:
            assert read.read() == rows
        assert pq.read_table("t/part-1.parquet", filesystem=storage.arrow()) == rows
        assert pq.read_table(storage.uri("t/part-1.parquet")) == rows
    with pytest.raises(FileNotFoundError):
        storage.open_input("t/part-2.parquet")


@pytest.mark.parametrize("key", ["t", "t/part-1"])
def test_what_is_moved_is_there_once(storage: LocalStorage, key: str) -> None:
    storage.replace("t/part-1", b"rows")
    storage.move(key, "aside/2026/moved")
    assert not storage.exists(key)
    assert storage.get("aside/2026/moved" + ("/part-1" if key == "t" else "")) == b"rows"


def test_a_folder_goes_with_all_that_is_in_it(storage: LocalStorage) -> None:
    for key in ("t/a", "t/b/c"):
        storage.replace(key, b"")
    storage.delete_all("t")
    storage.delete_all("t")
    assert storage.list("") == []


@pytest.mark.parametrize(
    ("write", "order"),
    [
        (lambda storage: storage.replace("f", b"x"), ["file", "folder"]),
        (lambda storage: storage.replace("f", b"x", durable=False), []),
        (lambda storage: storage.put_if_absent("f", b"x", durable=True), ["file", "folder"]),
        (lambda storage: storage.put_if_absent("f", b"x"), []),
        (lambda storage: storage.make_durable("", "there"), ["folder", "file"]),
    ],
)
def test_what_must_last_is_synced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[LocalStorage], None],
    order: list[str],
) -> None:
    storage, synced, fsync = LocalStorage(tmp_path), list[str](), os.fsync
    storage.replace("there", b"")

    def note(descriptor: int) -> None:
        synced.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write(storage)
    assert synced == order


def test_a_second_manifest_of_a_number_is_refused(tmp_path: Path) -> None:
    """Whoever comes second has not committed: the first one's content stays."""
    lake = Lake(tmp_path)
    lake.prepare()
    first, second = Manifests(lake), Manifests(lake)
    rows = pa.table({"x": [1]})
    first.commit(ingest_unit(lake, 1, {"silver_a_events": rows}))
    kept = lake.storage.get(f"{lake.manifests}/000000000001.json")
    with pytest.raises(ContractError, match=r"000000000001\.json exists already: another process has committed"):
        second.commit(ingest_unit(lake, 1, {"silver_b_events": rows}))
    assert lake.storage.get(f"{lake.manifests}/000000000001.json") == kept
