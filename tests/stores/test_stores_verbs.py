"""What every storage does alike: a local disk, moto and SeaweedFS."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.local.objectstore import ObjectStore
from scripts.local.ports import free_port
from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files import object_clients
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import LeaseLost, UnreachableError
from tests.support.stores import SEAWEEDFS, Moto, address_in, write_credentials

NAMES = ["plain", "a b", "100%", "50%25", "ümläut", "日本", "q?x=1&y", "#", "+", "a'b\"c", "=", "x" * 200]
CLIENTS = 8
ROUNDS = 10


def test_what_was_written_is_read(storage: Storage) -> None:
    storage.create_folders("state")
    storage.put_if_absent("state/a", b"one", durable=True)
    storage.replace("state/b", b"two")
    storage.replace("state/c", b"three", durable=False)
    assert [storage.get(f"state/{name}") for name in "abc"] == [b"one", b"two", b"three"]
    assert storage.list("state") == ["state/a", "state/b", "state/c"]
    assert storage.list("") == ["state"]
    assert storage.list("state", "b") == ["state/b"]
    assert [storage.size("state/b"), storage.size("state/x")] == [3, None]
    assert [storage.exists(key) for key in ("state/a", "state", "state/x", "stat")] == [True, True, False, False]
    assert abs((storage.changed_at("state/a") or 0) / 1e9 - time.time()) < 60
    assert storage.changed_at("state/x") is None


def test_a_tag_changes_with_the_content(storage: Storage) -> None:
    storage.create_folders("state/folder")
    for name in "ab":
        storage.replace(f"state/{name}", b"one")
    before = storage.tags("state")
    assert before == {f"state/{name}": storage.tag(f"state/{name}") for name in "ab"}
    storage.replace("state/a", b"two")  # at once, and as long as before
    after = storage.tags("state")
    assert [after["state/a"] == before["state/a"], after["state/b"] == before["state/b"]] == [False, True]
    assert (storage.tag("state/x"), storage.tag("state/folder"), storage.tags("x")) == (None, None, {})


def test_missing_files_are_not_found(storage: Storage) -> None:
    reads: list[Callable[[str], object]] = [storage.get, storage.open_input, storage.map_input]
    for read in reads:
        with pytest.raises(FileNotFoundError):
            read("state/x")
    assert storage.list("state") == []
    storage.delete("state/x", "state/y")
    storage.delete_all("state")


def test_a_file_is_created_once(storage: Storage) -> None:
    storage.put_if_absent("state/a", b"one")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("state/a", b"two")
    assert storage.get("state/a") == b"one"


@pytest.mark.parametrize("name", NAMES)
def test_names_are_kept(storage: Storage, name: str) -> None:
    storage.replace(f"state/{name}", name.encode())
    assert storage.list("state") == [f"state/{name}"]
    assert storage.get(f"state/{name}") == name.encode()
    with storage.put_file(f"t/{name}.parquet") as file:
        pq.write_table(pa.table({"a": [1]}), file)
    assert pq.read_table(storage.open_input(f"t/{name}.parquet")).num_rows == 1
    storage.delete(f"state/{name}")
    assert storage.list("state") == []


def test_more_names_than_a_page_has_are_in_order(storage: Storage) -> None:
    names = [f"many/{number:05d}" for number in range(1_203)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.replace(name, b"", durable=False), names))
    assert storage.list("many") == names
    storage.delete(*names[:1_100])
    assert storage.list("many") == names[1_100:]
    storage.delete_all("many")
    assert (storage.list("many"), storage.exists("many")) == ([], False)


def test_folders_and_names_are_sorted_together(storage: Storage) -> None:
    for name in ("b/x", "a", "c", "b-/x", "b.y"):
        storage.replace(f"f/{name}", b"")
    assert storage.list("f") == ["f/a", "f/b", "f/b-", "f/b.y", "f/c"]


@pytest.mark.parametrize("size", [0, 5 << 20, 70 << 20])
def test_files_of_any_size(storage: Storage, size: int) -> None:
    data = b"0123456789abcdef" * (size // 16)
    with storage.put_file("t/part-1.parquet") as file:
        file.write(data)
        assert file.tell() == size
    assert storage.size("t/part-1.parquet") == size
    with storage.open_input("t/part-1.parquet") as opened:
        assert opened.size() == size
        if size:
            opened.seek(size - 16)
            assert opened.read() == data[-16:]


def test_a_file_whose_writing_fails_is_not_there(storage: Storage) -> None:
    def write() -> None:
        with storage.put_file("t/part-1.parquet") as file:
            file.write(b"half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write()
    assert storage.list("t") == []


def test_lines_are_added(storage: Storage) -> None:
    for line in (b"a\n", b"b\n"):
        storage.append("spool/x.jsonl", line)
    assert storage.get("spool/x.jsonl") == b"a\nb\n"


def test_files_and_folders_move(storage: Storage) -> None:
    storage.replace("t/a", b"1")
    storage.replace("t/b/c", b"2")
    storage.move("t", "aside/t")
    assert (storage.exists("t/a"), storage.exists("t/b/c")) == (False, False)
    assert (storage.get("aside/t/a"), storage.get("aside/t/b/c")) == (b"1", b"2")
    storage.move("aside/t/a", "x")
    assert (storage.get("x"), storage.exists("aside/t/a")) == (b"1", False)


def test_a_folder_is_a_storage_and_travels_to_workers(storage: Storage) -> None:
    storage.replace("_state/rebuild/1/t/a", b"1")
    inner = pickle.loads(pickle.dumps(storage.within("_state/rebuild/1")))
    assert (inner.list("t"), inner.get("t/a")) == (["t/a"], b"1")
    assert inner.uri("t/a") == storage.uri("_state/rebuild/1/t/a")


def test_arrow_reads_what_the_storage_names(storage: Storage) -> None:
    with storage.put_file("t/part-1.parquet") as file:
        pq.write_table(pa.table({"a": [1, 2]}), file)
    assert pq.read_table("t/part-1.parquet", filesystem=storage.arrow()).num_rows == 2


def race(attempt: Callable[[int], None], lost: type[Exception]) -> int:
    """The client, of many at the same moment, whose attempt succeeds."""
    barrier = threading.Barrier(CLIENTS)

    def run(client: int) -> bool:
        barrier.wait()
        try:
            attempt(client)
        except lost:
            return False
        return True

    with ThreadPoolExecutor(CLIENTS) as pool:
        won = list(pool.map(run, range(CLIENTS)))
    assert sum(won) == 1
    return won.index(True)


# moto sometimes lets two of them succeed
@pytest.mark.parametrize("storage", ["disk", SEAWEEDFS], indirect=True)
def test_one_of_many_creates_a_file(storage: Storage) -> None:
    for number in range(ROUNDS):
        clients = [pickle.loads(pickle.dumps(storage)) for _ in range(CLIENTS)]

        def create(client: int, key: str = f"race/{number}", clients: Sequence[Storage] = clients) -> None:
            clients[client].put_if_absent(key, f"client {client}".encode())

        winner = race(create, FileExistsError)
        assert storage.get(f"race/{number}") == f"client {winner}".encode()


def bucket(store: Moto | ObjectStore) -> ObjectStorage:
    return ObjectStorage(address_in(store))


@pytest.mark.stack
def test_one_of_many_replaces_a_file(seaweedfs: ObjectStore) -> None:
    first = bucket(seaweedfs)
    first.replace("lease", b"0")
    for number in range(ROUNDS):
        clients = [ObjectStorage(first.address) for _ in range(CLIENTS)]
        for client in clients:
            client.get("lease")

        def swap(which: int, clients: Sequence[ObjectStorage] = clients, number: int = number) -> None:
            clients[which].swap("lease", f"{number} {which}".encode())

        winner = race(swap, LeaseLost)
        assert ObjectStorage(first.address).get("lease") == f"{number} {winner}".encode()


def test_a_file_that_another_process_changed_or_removed_is_not_replaced(store: Moto | ObjectStore) -> None:
    one = bucket(store)
    one.replace("state", b"1")
    other = ObjectStorage(one.address)
    other.get("state")
    other.replace("state", b"2")
    with pytest.raises(LeaseLost, match="changed by another process"):
        one.replace("state", b"3")
    assert other.get("state") == b"2"
    other.delete("state")
    with pytest.raises(LeaseLost):
        one.replace("state", b"3")
    assert not other.exists("state")


@pytest.mark.parametrize("kind", ["lost", "half", "reset"])
def test_no_answer_that_is_lost_changes_the_result(spoilt: ObjectStorage, proxy: StoreProxy, kind: str) -> None:
    verbs: list[tuple[Callable[[], object], object]] = [
        (lambda: spoilt.put_if_absent("a", b"1"), b"1"),
        (lambda: spoilt.replace("a", b"2"), b"2"),
        (lambda: spoilt.replace("a", b"3", durable=False), b"3"),
        (lambda: spoilt.append("a", b"4"), b"34"),
    ]
    for act, due in verbs:
        proxy.faults.clear()
        proxy.spoil(kind, "PUT", times=1)  # type: ignore[arg-type]
        act()
        assert [fault.done for fault in proxy.faults] == [1]
        assert spoilt.get("a") == due
    proxy.faults.clear()
    proxy.spoil(kind, "DELETE|DELETES", times=1)  # type: ignore[arg-type]
    spoilt.delete("a")
    assert spoilt.list("") == []


def test_conflicts_and_overload_are_asked_again(spoilt: ObjectStorage, proxy: StoreProxy) -> None:
    proxy.spoil("status", "PUT", times=2, status=409, code="ConditionalRequestConflict")
    spoilt.put_if_absent("a", b"1")
    proxy.spoil("status", "PUT", times=2, status=503)
    spoilt.replace("a", b"2")
    proxy.spoil("status", "GET", times=2, status=503)
    assert spoilt.get("a") == b"2"


def test_wrong_keys_are_refused_without_being_said(tmp_path: Path, seaweedfs: ObjectStore) -> None:
    write_credentials(tmp_path / "keys", "nobody", "s3cr3t-of-nobody")
    own = ObjectStorage(replace(address_in(seaweedfs), credentials_file=str(tmp_path / "keys")))
    with pytest.raises(PermissionError) as refused:
        own.replace("a", b"")
    assert "s3cr3t-of-nobody" not in str(refused.value)
    assert "nobody" not in str(refused.value).replace("of-nobody", "")


test_wrong_keys_are_refused_without_being_said.pytestmark = [pytest.mark.stack]  # type: ignore[attr-defined]


def test_a_store_that_is_gone_is_named(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_clients, "RETRY_S", 1)
    gone = ObjectStorage(replace(address_in(moto), endpoint=f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(UnreachableError, match=r"the object store did not do .*: check http://127"):
        gone.replace("a", b"")
