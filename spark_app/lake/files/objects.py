"""The files of a lake in a bucket of an object store.

Writes and state go through obstore, which has conditional writes; files of tables are read through Arrow, which reads
parts of them. An answer may be lost after the store has done what was asked, and the request is then repeated: what was
meant to be created is there, with the content of this process. Such an answer is a success.

The reasons: docs/decisions/buckets.md.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import ObjectStore

from spark_app.lake.files import object_clients as clients
from spark_app.lake.files.object_clients import AGAIN_S, missing, read_credentials, send
from spark_app.lake.files.storage import Storage
from spark_app.lake.files.store_errors import NoBucket, failed, no_bucket, store_error
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, LeaseLost

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

T = TypeVar("T")

PART_BYTES = 64 << 20  # a larger file is sent in parts
MOST_TAGS = 10_000
AT_ONCE = 16  # files that are moved side by side


class ObjectStorage(Storage):
    """A prefix in a bucket."""

    is_local = False

    def __init__(self, address: StorageAddress, fence: Callable[[], None] = lambda: None):
        """`fence`: raises `LeaseLost` if this process has had the lease of the lake and lost it."""
        self.address = address
        self._fence = fence
        self.root = address.root.rstrip("/")
        self._tags: OrderedDict[str, str | None] = OrderedDict()  # key -> tag of the content that this process knows
        self._noting = threading.Lock()
        self._turns: WeakValueDictionary[str, Any] = WeakValueDictionary()  # key -> lock

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.address,)

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return clients.open_store(self.address)

    @property
    def delta_options(self) -> dict[str, str]:
        address = self.address
        options = {"AWS_ENDPOINT_URL": address.endpoint, "AWS_REGION": address.region}
        options["AWS_ALLOW_HTTP"] = "true" if address.endpoint.startswith("http://") else ""
        keys = read_credentials(address.credentials_file) if address.credentials_file else {}
        return {name: text for name, text in options.items() if text} | {n.upper(): key for n, key in keys.items()}

    def probe(self, key: str) -> None:
        key = f"{key}-{secrets.token_hex(8)}"
        try:
            results = [self._create(key, secrets.token_bytes(8)), self._create(key, secrets.token_bytes(8))]
        except NoBucket:
            raise ConfigurationError(
                f"lake.path: {self.address.endpoint or 'the object store'} has no bucket {self.address.bucket}: create "
                "it, or correct the setting"
            ) from None
        with contextlib.suppress(AlreadyExistsError, PreconditionError, FileNotFoundError):
            self._put(key, secrets.token_bytes(8), {"e_tag": '"0123456789abcdef0123456789abcdef"'})
            results.append(True)
        self.delete(key)
        if results != [True, False]:
            raise ConfigurationError(
                f"lake.path: the object store of {self.root} does not keep If-None-Match and If-Match, so two "
                "processes could write one lake: use a store that does"
            )

    def within(self, folder: str) -> ObjectStorage:
        return ObjectStorage(replace(self.address, root=self.uri(folder)))

    def list(self, folder: str, prefix: str = "") -> list[str]:
        found = self._listed(folder)
        keys = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        within = f"{folder}/" if folder else ""  # some stores list an empty folder as an object in itself
        return sorted(key for key in keys if key > within and key.startswith(f"{within}{prefix}"))

    def _listed(self, folder: str) -> Any:
        return self._ask(folder, lambda: obstore.list_with_delimiter(self._store, folder or None))

    def exists(self, key: str) -> bool:
        return self.size(key) is not None or self._has_files(key)

    def _has_files(self, folder: str) -> bool:
        return self._ask(folder, lambda: any(obstore.list(self._store, folder or None, chunk_size=1)))

    def size(self, key: str) -> int | None:
        meta = self._meta(key)
        return None if meta is None else meta["size"]

    def changed_at(self, key: str) -> int | None:
        meta = self._meta(key)
        return None if meta is None else int(meta["last_modified"].timestamp() * 1e6) * 1000

    def tag(self, key: str) -> str | None:
        meta = self._meta(key)
        return None if meta is None else _tag(meta)

    def tags(self, folder: str) -> dict[str, str]:
        return {one["path"]: _tag(one) for one in self._listed(folder)["objects"]}

    def _meta(self, key: str) -> Any:
        try:
            return self._ask(key, lambda: obstore.head(self._store, key))
        except FileNotFoundError:
            return None

    def get(self, key: str) -> bytes:
        data, tag = self._read(key)
        self._note(key, tag)
        return data

    def _read(self, key: str) -> tuple[bytes, str | None]:
        """The content and its tag."""

        def read() -> tuple[bytes, str | None]:
            found = obstore.get(self._store, key)
            return found.bytes().to_bytes(), found.meta["e_tag"]

        return self._ask(key, read)

    def open_input(self, key: str) -> pa.NativeFile:
        try:
            return self.arrow().open_input_file(key)
        except FileNotFoundError:
            raise missing(self.uri(key)) from None
        except OSError as error:
            raise store_error(error, self.uri(key), self.address.endpoint) from None

    def map_input(self, key: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self.get(key))

    def arrow(self) -> FileSystem:
        from pyarrow.fs import SubTreeFileSystem

        address = self.address
        base = f"{address.bucket}/{address.prefix}".rstrip("/")
        return SubTreeFileSystem(base, clients.open_arrow(address))

    def append(self, key: str, data: bytes) -> None:
        """One process writes the file: nothing is lost although it is read and written again."""
        with self._turn(key):
            with contextlib.suppress(FileNotFoundError):
                data = self.get(key) + data
            self.replace(key, data)

    def put_if_absent(self, key: str, data: bytes, durable: bool = False) -> None:
        if not self._create(key, data):
            raise FileExistsError(f"{self.uri(key)} exists already")

    def _create(self, key: str, data: bytes) -> bool:
        """Create a file; False if it exists with another content. A store that is asked twice at the same time may
        answer that there is a conflict although no file is there yet: then it is asked again."""
        deadline = time.monotonic() + clients.RETRY_S
        while True:
            try:
                self._put(key, data, "create")
                return True
            except FileNotFoundError:
                raise self._no_bucket(key) from None
            except AlreadyExistsError:
                found = self._has(key, data)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise failed(self.uri(key), "its creation is in conflict with another one", self.address.endpoint)
            time.sleep(AGAIN_S)

    def replace(self, key: str, data: bytes | memoryview, durable: bool = True, owned: bool = False) -> None:
        with self._turn(key):
            if not durable and not owned:
                self._overwrite(key, bytes(data))
                return
            tag = self._known_tag(key)
            self._fence()  # the tag alone would not do: a thread of this process may have read what another one wrote
            self._swap(key, bytes(data), tag, may_be_gone=not durable)

    def swap(self, key: str, data: bytes) -> None:
        """Replace a file only if nobody has changed it since this process last read or wrote it.

        Raises:
            LeaseLost: another process has changed it.
        """
        with self._turn(key):
            self._swap(key, data, self._known_tag(key))

    def _swap(self, key: str, data: bytes, tag: str | None, may_be_gone: bool = False) -> None:
        """
        Args:
            tag: of the content to replace; None = there is no file.
            may_be_gone: if somebody has removed the file, it is created again.
        """
        if tag is None:
            is_written = self._create(key, data)
        else:
            try:
                self._put(key, data, {"e_tag": tag})
                is_written = True
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                found = self._has(key, data)
                is_written = self._create(key, data) if found is None and may_be_gone else bool(found)
        if not is_written:
            raise LeaseLost(
                f"{self.uri(key)} was changed by another process, which writes this lake now: stop one of them"
            )

    def _has(self, key: str, data: bytes) -> bool | None:
        """Whether a file has this content; None if there is no file. What another process wrote is not noted as known:
        this process must not replace it."""
        try:
            found, tag = self._read(key)
        except FileNotFoundError:
            return None
        if found == data:
            self._note(key, tag)
        return found == data

    def _known_tag(self, key: str) -> str | None:
        with self._noting:
            if key in self._tags:
                return self._tags[key]
        meta = self._meta(key)
        return None if meta is None else meta["e_tag"]

    def _note(self, key: str, tag: str | None) -> None:
        with self._noting:
            self._tags[key] = tag
            self._tags.move_to_end(key)
            if len(self._tags) > MOST_TAGS:
                self._tags.popitem(last=False)

    @contextlib.contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        """Threads of this process replace a file one after the other: none is the other process of a changed tag."""
        with self._noting:
            lock = self._turns.setdefault(key, threading.RLock())
        with lock:
            yield

    def _overwrite(self, key: str, data: bytes) -> None:
        try:
            self._put(key, data, "overwrite")
        except FileNotFoundError:
            raise self._no_bucket(key) from None

    def _put(self, key: str, data: bytes, mode: Any) -> None:
        put = functools.partial(obstore.put, self._store, key, data, mode=mode, use_multipart=False)
        self._note(key, self._ask(key, put)["e_tag"])

    @contextlib.contextmanager
    def put_file(self, key: str, durable: bool = True) -> Iterator[pa.BufferOutputStream]:
        import pyarrow as pa

        buffer = pa.BufferOutputStream()
        yield buffer
        data = buffer.getvalue().to_pybytes()
        in_parts = len(data) > PART_BYTES
        try:
            put = functools.partial(obstore.put, self._store, key, data, use_multipart=in_parts, chunk_size=PART_BYTES)
            self._ask(key, put)
        except FileNotFoundError:
            if not (in_parts and self.size(key) == len(data)):  # else the upload was completed, and its answer lost
                raise self._no_bucket(key) from None

    def make_durable(self, *keys: str) -> None:
        pass

    def delete(self, *keys: str) -> None:
        if keys:
            with contextlib.suppress(FileNotFoundError):
                self._ask(keys[0], lambda: obstore.delete(self._store, list(keys)))
            with self._noting:
                for key in keys:
                    self._tags.pop(key, None)

    def delete_all(self, folder: str) -> None:
        self.delete(*self._below(folder))

    def _below(self, folder: str) -> tuple[str, ...]:
        listed = self._ask(folder, lambda: obstore.list(self._store, folder or None).collect())
        return tuple(one["path"] for one in listed)

    def create_folders(self, *folders: str) -> None:
        pass

    def move(self, key: str, to: str) -> None:
        names = self._below(key) or (key,)

        def copy(name: str) -> None:
            self._ask(name, lambda: obstore.copy(self._store, name, f"{to}{name[len(key) :]}"))

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(copy, names))
        self._fence()  # another process may use the files by now; copies of them do no harm
        self.delete(*names)

    def _ask(self, key: str, request: Callable[[], T]) -> T:
        """The answer to a request about a key; `object_clients.send` has the errors."""
        return send(self.uri(key), self.address.endpoint, request)

    def _no_bucket(self, key: str) -> Exception:
        return no_bucket(self.uri(key), self.address.endpoint)


def _tag(meta: Any) -> str:
    """The e-tag; where a store gives none, size and time."""
    return meta["e_tag"] or f"{meta['size']} {meta['last_modified'].isoformat()}"


# The start of the app checks whether a store knows conditional writes. Some stores know them, and fail to keep them
# when requests come at the same moment: `race` finds these.
CLIENTS = 8
ROUNDS = 5


def race(address: StorageAddress, key: str) -> list[str]:
    """Race `CLIENTS` clients to create an object, and then to replace it, `ROUNDS` times.

    Args:
        key: beginning of the names of the objects, which are removed again.

    Returns:
        The races that had more than one winner, or none, or whose winner's content is not there, one line each.

    Raises:
        PermissionError, StoreError
    """
    key = f"{key}-{secrets.token_hex(8)}"
    clients = [ObjectStorage(address) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        return [fault for number in range(ROUNDS) for fault in _race_once(pool, clients, f"{key}-{number}")]


def _race_once(pool: ThreadPoolExecutor, clients: list[ObjectStorage], key: str) -> list[str]:
    try:
        created = _fault(pool, clients, key, "create", lambda client, data: client.put_if_absent(key, data))
        list(pool.map(lambda client: client.get(key), clients))
        replaced = _fault(pool, clients, key, "replace", lambda client, data: client.swap(key, data))
    finally:
        clients[0].delete(key)
    return created + replaced


def _fault(
    pool: ThreadPoolExecutor,
    clients: list[ObjectStorage],
    key: str,
    what: str,
    write: Callable[[ObjectStorage, bytes], None],
) -> list[str]:
    together = threading.Barrier(CLIENTS)

    def attempt(number: int) -> bool:
        together.wait()
        try:
            write(clients[number], _content(what, number))
        except (FileExistsError, LeaseLost):
            return False
        return True

    winners = [number for number, won in enumerate(pool.map(attempt, range(CLIENTS))) if won]
    if len(winners) != 1:
        return [f"it confirmed to {len(winners)} of {CLIENTS} clients that they alone did {what} {key}"]
    if clients[0].get(key) != _content(what, winners[0]):
        return [f"the client to which it confirmed that it did {what} {key} did not"]
    return []


def _content(what: str, number: int) -> bytes:
    return f"{what} {number}".encode()
