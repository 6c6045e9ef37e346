"""The files of a lake in a bucket of an object store.

Writes and state go through obstore, which has conditional writes; files of tables are read through Arrow, which reads
parts of them. An answer may be lost after the store has done what was asked, and the request is then repeated: what was
meant to be created is there, with the content of this process. Such an answer is a success.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, PreconditionError
from obstore.exceptions import UnauthenticatedError as NoCredentialsError
from obstore.store import ObjectStore, S3Store
from obstore.store import from_url as store_at

from spark_app.model.errors import ConfigurationError, TakenOver
from spark_app.model.place import Place
from spark_app.storage.storage import Storage
from spark_app.storage.store_errors import denied, failed
from spark_app.storage.store_keys import read_credentials

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

RETRY_S = 60  # a request is repeated for so long
CONNECT_S = 5
REQUEST_S = 60  # a PUT of a part has at most 10 MiB
REREAD_S = 60.0  # the file of credentials is read again after this time
PART_BYTES = 64 << 20  # a larger file is sent in parts
MOST_TAGS = 10_000
AT_ONCE = 16  # files that are moved side by side


class ObjectStorage(Storage):
    """A prefix in a bucket.

    Attributes:
        fence: raises `TakenOver` if this process has had the lease of the lake and lost it.
    """

    is_local = False

    def __init__(self, place: Place):
        self.place = place
        self.root = place.root.rstrip("/")
        self._tags: OrderedDict[str, str | None] = OrderedDict()  # key -> tag of the content that this process knows
        self._noting = threading.Lock()
        self.fence: Callable[[], None] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self.place,)

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return _open(self.place)

    @property
    def delta_options(self) -> dict[str, str]:
        place = self.place
        options = {"AWS_ENDPOINT_URL": place.endpoint, "AWS_REGION": place.region}
        options["AWS_ALLOW_HTTP"] = "true" if place.endpoint.startswith("http://") else ""
        keys = read_credentials(place.credentials_file) if place.credentials_file else {}
        return {name: text for name, text in options.items() if text} | {n.upper(): key for n, key in keys.items()}

    def probe(self, key: str) -> None:
        key = f"{key}-{secrets.token_hex(8)}"
        results = []
        for mode in ("create", "create", {"e_tag": '"0123456789abcdef0123456789abcdef"'}):
            try:
                self._put(key, secrets.token_bytes(8), mode)
                results.append(True)
            except (AlreadyExistsError, PreconditionError):
                results.append(False)
        self.delete(key)
        if results != [True, False, False]:
            raise ConfigurationError(
                f"lake.path: the object store of {self.root} does not keep If-None-Match and If-Match, so two "
                "processes could write one lake: use a store that does"
            )

    def within(self, folder: str) -> ObjectStorage:
        return ObjectStorage(Place(self.uri(folder), *vars_after_root(self.place)))

    def list(self, folder: str, prefix: str = "") -> list[str]:
        with self._asking(folder):
            found = obstore.list_with_delimiter(self._store, folder or None)
        keys = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        start = len(folder) + 1 if folder else 0
        return sorted(key for key in keys if key[start:].startswith(prefix))

    def exists(self, key: str) -> bool:
        try:
            return self.size(key) is not None or self._has_files(key)
        except PermissionError:
            return False

    def _has_files(self, folder: str) -> bool:
        with self._asking(folder):
            return any(obstore.list(self._store, folder or None, chunk_size=1))

    def size(self, key: str) -> int | None:
        meta = self._meta(key)
        return None if meta is None else meta["size"]

    def changed_at(self, key: str) -> int | None:
        meta = self._meta(key)
        return None if meta is None else int(_micros(meta["last_modified"])) * 1000

    def _meta(self, key: str) -> Any:
        try:
            with self._asking(key):
                return obstore.head(self._store, key)
        except FileNotFoundError:
            return None

    def get(self, key: str) -> bytes:
        with self._asking(key):
            found = obstore.get(self._store, key)
            data = found.bytes().to_bytes()
        self._note(key, found.meta["e_tag"])
        return data

    def open_input(self, key: str) -> pa.NativeFile:
        return self.arrow().open_input_file(key)

    def map_input(self, key: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.BufferReader(self.get(key))

    def arrow(self) -> FileSystem:
        from pyarrow.fs import SubTreeFileSystem

        place = self.place
        base = f"{place.bucket}/{place.prefix}".rstrip("/")
        return SubTreeFileSystem(base, _arrow(place, int(time.monotonic() // REREAD_S)))

    def append(self, key: str, data: bytes) -> None:
        """One process writes the file: nothing is lost although it is read and written again."""
        with contextlib.suppress(FileNotFoundError):
            data = self.get(key) + data
        self.replace(key, data)

    def put_if_absent(self, key: str, data: bytes, durable: bool = False) -> None:
        try:
            self._put(key, data, "create")
        except AlreadyExistsError:
            if self.get(key) != data:
                raise FileExistsError(f"{self.uri(key)} exists already") from None

    def replace(self, key: str, data: bytes | memoryview, durable: bool = True) -> None:
        if not durable:
            self._put(key, bytes(data), "overwrite")
            return
        tag = self._known_tag(key)
        self.fence()
        self.swap(key, bytes(data), tag)

    def swap(self, key: str, data: bytes, tag: str | None = None) -> None:
        """Replace a file only if nobody has changed it since it had this tag, or else since this process last read or
        wrote it.

        Raises:
            TakenOver: another process has changed it.
        """
        tag = tag or self._known_tag(key)
        try:
            self._put(key, data, {"e_tag": tag} if tag else "create")
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            if not self._has(key, data):
                raise TakenOver(
                    f"{self.uri(key)} was changed by another process, which writes this lake now: stop one of them"
                ) from None

    def _has(self, key: str, data: bytes) -> bool:
        try:
            return self.get(key) == data
        except FileNotFoundError:
            return False

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

    def _put(self, key: str, data: bytes, mode: Any) -> None:
        with self._asking(key):
            self._note(key, obstore.put(self._store, key, data, mode=mode, use_multipart=False)["e_tag"])

    @contextlib.contextmanager
    def put_file(self, key: str, durable: bool = True) -> Iterator[pa.BufferOutputStream]:
        import pyarrow as pa

        buffer = pa.BufferOutputStream()
        yield buffer
        data = buffer.getvalue().to_pybytes()
        with self._asking(key):
            obstore.put(self._store, key, data, use_multipart=len(data) > PART_BYTES, chunk_size=PART_BYTES)

    def make_durable(self, *keys: str) -> None:
        pass

    def delete(self, *keys: str) -> None:
        if keys:
            with self._asking(keys[0]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, list(keys))
            with self._noting:
                for key in keys:
                    self._tags.pop(key, None)

    def delete_all(self, folder: str) -> None:
        self.delete(*self._below(folder))

    def _below(self, folder: str) -> tuple[str, ...]:
        with self._asking(folder):
            return tuple(one["path"] for chunk in obstore.list(self._store, folder or None) for one in chunk)

    def create_folders(self, *folders: str) -> None:
        pass

    def move(self, key: str, to: str) -> None:
        names = self._below(key) or (key,)
        with self._asking(key):
            for name in names:
                obstore.copy(self._store, name, f"{to}{name[len(key) :]}")
        self.delete(*names)

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[None]:
        """Requests about a key.

        Raises:
            FileNotFoundError, AlreadyExistsError, PreconditionError
            PermissionError: the store refuses the credentials.
            StoreError: the store does not answer, see `store_errors`.
        """
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except (PermissionDeniedError, NoCredentialsError):
            raise denied(self.uri(key)) from None
        except BaseError as error:
            raise failed(self.uri(key), _first_line(error), self.place.endpoint) from None


def vars_after_root(place: Place) -> tuple[str, ...]:
    return tuple(vars(place).values())[1:]


def _open(place: Place) -> ObjectStore:
    seconds = datetime.timedelta(seconds=1)
    client: Any = {"connect_timeout": CONNECT_S * seconds, "timeout": REQUEST_S * seconds}
    retry: Any = {"retry_timeout": RETRY_S * seconds}
    if place.scheme != "s3":
        return store_at(place.root, client_options=client, retry_config=retry)
    if place.endpoint.startswith("http://"):
        client["allow_http"] = True
    known = {"endpoint": place.endpoint, "region": place.region}
    config: Any = {name: text for name, text in known.items() if text}
    keys = functools.partial(_credential, place.credentials_file) if place.credentials_file else None
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=keys,  # type: ignore[arg-type]
    )


def _credential(path: str) -> dict[str, Any]:
    found = read_credentials(path)
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=REREAD_S)
    return {
        "access_key_id": found["aws_access_key_id"],
        "secret_access_key": found["aws_secret_access_key"],
        "token": found.get("aws_session_token"),
        "expires_at": until,
    }


@functools.lru_cache(maxsize=4)
def _arrow(place: Place, moment: int) -> FileSystem:
    """Arrow's client. A `moment` makes a new one, because it reads the file of credentials only once."""
    from pyarrow import fs

    if place.scheme != "s3":
        return fs.FileSystem.from_uri(place.root)[0]
    options: dict[str, Any] = {"region": place.region or None}
    if place.endpoint:
        scheme, _, address = place.endpoint.partition("://")
        options |= {"endpoint_override": address, "scheme": scheme}
    if place.credentials_file:
        keys = read_credentials(place.credentials_file)
        options |= {"access_key": keys["aws_access_key_id"], "secret_key": keys["aws_secret_access_key"]}
        options |= {"session_token": keys.get("aws_session_token")}
    return fs.S3FileSystem(
        connect_timeout=CONNECT_S, request_timeout=REQUEST_S, **{k: v for k, v in options.items() if v}
    )


def _micros(moment: datetime.datetime) -> float:
    return moment.timestamp() * 1e6


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
