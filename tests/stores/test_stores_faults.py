"""Files of a bucket when answers are lost, keys change, and threads and processes work side by side."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.objectstore import ObjectStore
from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files import object_clients, objects
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import ConfigurationError, UnreachableError
from tests.support.stores import Moto, address_in

PART = 5 << 20  # the least that S3 takes
THREADS = 8
SECRET = "s3cr3t-of-nobody"


@pytest.mark.parametrize("kind", ["lost", "half", "reset", "status"])
@pytest.mark.parametrize("verb", ["BEGIN", "PART", "COMPLETE"])
def test_an_upload_in_parts_is_whole(
    spoilt: ObjectStorage, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch, kind: str, verb: str
) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", PART)
    data = bytes(range(256)) * (PART // 256) + b"rest"
    fault = proxy.spoil(kind, verb)  # type: ignore[arg-type]
    with spoilt.put_file("t/part-1.parquet") as file:
        file.write(data)
    assert (fault.done, spoilt.get("t/part-1.parquet") == data) == (1, True)
    assert spoilt.list("t") == ["t/part-1.parquet"]


@pytest.mark.parametrize("kind", ["lost", "half", "reset", "status"])
def test_a_folder_moves_and_goes_whole(spoilt: ObjectStorage, proxy: StoreProxy, kind: str) -> None:
    for name in "abc":
        spoilt.replace(f"t/{name}", name.encode())
    faults = [proxy.spoil(kind, verb) for verb in ("LIST", "COPY", "DELETES?")]  # type: ignore[arg-type]
    spoilt.move("t", "aside/t")
    assert [fault.done for fault in faults] == [1, 1, 1]
    assert (spoilt.list("t"), spoilt.list("aside/t")) == ([], ["aside/t/a", "aside/t/b", "aside/t/c"])
    assert [spoilt.get(f"aside/t/{name}") for name in "abc"] == [b"a", b"b", b"c"]
    proxy.forget()
    faults = [proxy.spoil(kind, verb) for verb in ("LIST", "DELETES?")]  # type: ignore[arg-type]
    spoilt.delete_all("aside")
    assert [fault.done for fault in faults] == [1, 1]
    assert [spoilt.exists(folder) for folder in ("t", "aside", "aside/t")] == [False] * 3


@pytest.mark.parametrize("kind", ["lost", "half", "reset", "status"])
def test_a_question_is_asked_until_its_answer_is_whole(spoilt: ObjectStorage, proxy: StoreProxy, kind: str) -> None:
    data = b"x" * 300_000
    spoilt.replace("t/a", data)
    questions: list[tuple[str, Callable[[], object], object]] = [
        ("LIST", lambda: spoilt.list("t"), ["t/a"]),
        ("GET", lambda: spoilt.get("t/a"), data),
        ("GET", lambda: spoilt.open_input("t/a").read(), data),
        ("HEAD", lambda: spoilt.size("t/a"), len(data)),
        ("LIST", lambda: spoilt.exists("t"), True),
    ]
    for verb, ask, due in questions:
        proxy.faults.clear()
        fault = proxy.spoil(kind, verb)  # type: ignore[arg-type]
        assert (ask() == due, fault.done) == (True, 1)


def test_writes_whose_answers_come_too_late_are_repeated(
    store: Moto | ObjectStore, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_clients, "REQUEST_S", 0.5)
    storage = ObjectStorage(address_in(store, proxy.url))
    storage.replace("state", b"old")
    faults = [proxy.spoil("slow", "PUT", key, seconds=3, times=2) for key in ("manifest", "state")]
    storage.put_if_absent("manifest", b"own")
    storage.replace("state", b"own")
    assert ([fault.done for fault in faults], storage.get("manifest"), storage.get("state")) == ([2, 2], b"own", b"own")


def test_a_store_that_stays_away_is_given_up_after_a_while(
    spoilt: ObjectStorage, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_clients, "RETRY_S", 0.5)
    proxy.spoil("status", status=503, times=1_000)
    asks: list[Callable[[], object]] = [
        lambda: spoilt.get("a"),
        lambda: spoilt.put_if_absent("a", b""),
        lambda: spoilt.list("a"),
        lambda: spoilt.delete("a"),
    ]
    for ask in asks:
        with pytest.raises(UnreachableError, match=f"check {proxy.url}"):
            ask()
    proxy.forget()
    assert not spoilt.exists("a")


@pytest.mark.parametrize("verb", ["PUT", "HEAD", "GET"])
def test_refused_keys_are_no_missing_file(spoilt: ObjectStorage, proxy: StoreProxy, verb: str) -> None:
    asks: dict[str, Callable[[], object]] = {
        "PUT": lambda: spoilt.put_if_absent("a", b""),
        "HEAD": lambda: spoilt.open_input("a"),
        "GET": lambda: spoilt.get("a"),
    }
    proxy.spoil("status", verb, status=403, code="InvalidAccessKeyId", times=10)
    with pytest.raises(PermissionError, match="refuses access: check the keys"):
        asks[verb]()


@pytest.mark.parametrize("key", ["..", "a/../../b", "./a", "a//b", "a\nb"])
def test_a_key_does_not_leave_the_prefix(spoilt: ObjectStorage, proxy: StoreProxy, key: str) -> None:
    with pytest.raises(ValueError, match="Could not parse path"):
        spoilt.replace(key, b"")
    assert proxy.requests == []


@pytest.mark.stack
def test_keys_that_are_replaced_are_read_again(
    tmp_path: Path, seaweedfs: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the right keys, wrong ones, none, and the right ones again. obstore asks for keys ten times a
    second at most."""
    monkeypatch.setattr(object_clients, "REREAD_S", 0.01)
    keys = tmp_path / "keys"
    right = seaweedfs.credentials_file.read_text()

    def put_keys(text: str) -> None:
        keys.touch(mode=0o600)
        keys.write_text(text)
        time.sleep(0.3)

    put_keys(right)
    storage = ObjectStorage(replace(address_in(seaweedfs), credentials_file=str(keys)))
    storage.replace("a", b"1")
    assert storage.open_input("a").read() == b"1"
    put_keys(f"[default]\naws_access_key_id = nobody\naws_secret_access_key = {SECRET}\n")
    reads: list[Callable[[str], object]] = [storage.get, storage.open_input]
    for read in reads:
        with pytest.raises(PermissionError) as refused:
            read("a")
        assert SECRET not in "".join(traceback.format_exception(refused.value))
    put_keys(f"aws_secret_access_key = {SECRET}")
    for read in reads:
        with pytest.raises((ConfigurationError, OSError)) as unread:
            read("a")
        assert SECRET not in "".join(traceback.format_exception(unread.value))
    put_keys(right)
    assert (storage.get("a"), storage.open_input("a").read()) == (b"1", b"1")


def test_no_key_travels_with_a_storage(store: Moto | ObjectStore) -> None:
    """Another process opens it by its address."""
    storage = ObjectStorage(address_in(store))
    storage.replace("a", b"1")
    packed = pickle.dumps(storage)
    secret = store.credentials_file.read_text().split()[-1]
    assert storage.delta_options["AWS_SECRET_ACCESS_KEY"] == secret
    if isinstance(store, ObjectStore):  # moto's is an ordinary word
        assert secret.encode() not in packed
    code = "import pickle, sys; s = pickle.load(sys.stdin.buffer); s.put_if_absent('b', s.get('a') + b'2')"
    done = subprocess.run([sys.executable, "-c", code], input=packed, cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr, storage.get("b")) == (0, b"", b"12")


def test_readers_see_one_content_while_it_is_replaced(storage: Storage) -> None:
    contents = [b"%d" % number * 200_000 for number in range(10)]
    storage.replace("state", contents[0])
    ended, seen = threading.Event(), set[bytes]()

    def read() -> None:
        while not ended.is_set():
            seen.add(storage.get("state"))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number, content in enumerate(contents):
                storage.replace("state", content, durable=number % 2 == 0)
        finally:
            ended.set()
        for reader in readers:
            reader.result()
    assert seen
    assert seen <= set(contents)


def test_threads_of_one_process_do_not_lock_each_other_out(storage: Storage) -> None:
    """All replace one file, add to another, and write their own."""

    def work(thread: int) -> None:
        for number in range(3):
            storage.replace("one", b"%d" % thread * 100)
            storage.append("lines", b"%d %d\n" % (thread, number))
            with storage.put_file(f"t/{thread}-{number}") as file:
                file.write(b"%d" % thread * 1_000)

    storage.create_folders("t")
    storage.append("lines", b"first\n")
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    both = [(thread, number) for thread in range(THREADS) for number in range(3)]
    assert storage.get("one") in {b"%d" % thread * 100 for thread in range(THREADS)}
    assert sorted(storage.get("lines").splitlines()) == sorted([b"first", *(b"%d %d" % one for one in both)])
    assert storage.list("t") == sorted(f"t/{thread}-{number}" for thread, number in both)
    assert all(storage.get(f"t/{thread}-{number}") == b"%d" % thread * 1_000 for thread, number in both)
