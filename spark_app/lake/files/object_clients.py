"""Clients of an object store: obstore's for writes and state, Arrow's for files of tables; with keys and requests.

The keys are in a file that only its owner may read. Both clients read it again every minute, so that keys can be
replaced while the app runs.
"""

from __future__ import annotations

import configparser
import datetime
import errno
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, PreconditionError
from obstore.exceptions import UnauthenticatedError as NoCredentialsError
from obstore.store import ObjectStore, S3Store
from obstore.store import from_url as store_at

from spark_app.lake.files.store_errors import denied, failed, no_bucket
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, first_message_line

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SETTING = "store.credentials_file"
NAMES = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def read_credentials(path: str) -> dict[str, str]:
    """The keys in a file: `NAMES` -> value, the last one only for temporary keys.

    Raises:
        ConfigurationError: the file cannot be read, is open to other users, or has no keys.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{SETTING}: cannot read {path} ({type(error).__name__})") from None
    if mode & 0o077:
        raise ConfigurationError(f"{SETTING}: {path} is open to other users; run chmod 600 {path}")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
        section = parser[os.environ.get("AWS_PROFILE", "default")]
        return {name: section[name] for name in NAMES[:2]} | {n: section[n] for n in NAMES[2:] if n in section}
    except (configparser.Error, KeyError):  # their texts may have a part of a key
        raise ConfigurationError(f"{SETTING}: {path} has no {NAMES[0]} and {NAMES[1]} in a section [default]") from None


T = TypeVar("T")

AGAIN_S = 0.1  # before a request is repeated that the library does not repeat
NO_BUCKET, FORBIDDEN = "NoSuchBucket", "403 Forbidden"  # the library has no exceptions of their own for a list
CUT = "HTTP error"  # so obstore's texts begin about a connection, and otherwise they give the answer's status


def send(uri: str, endpoint: str, request: Callable[[], T]) -> T:
    """The answer to a request about an object.

    Raises:
        FileNotFoundError, AlreadyExistsError, PreconditionError
        PermissionError: the store refuses the credentials.
        StoreError: the store does not answer, see `store_errors`.
    """
    try:
        return _ask_again_if_cut(request)
    except (AlreadyExistsError, PreconditionError):
        raise
    except FileNotFoundError:
        raise missing(uri) from None
    except (PermissionDeniedError, NoCredentialsError):
        raise denied(uri) from None
    except BaseError as error:
        if NO_BUCKET in str(error):
            raise no_bucket(uri, endpoint) from None
        if FORBIDDEN in str(error):
            raise denied(uri) from None
        raise failed(uri, first_message_line(error), endpoint) from None


def _ask_again_if_cut(request: Callable[[], T]) -> T:
    """The library repeats a request that got no answer, but often not one whose answer was cut in the middle, or came
    too late."""
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return request()
        except BaseError as error:
            if CUT not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)


def missing(uri: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)


RETRY_S = 60  # a request is repeated for so long
MOST_RETRIES = 10_000  # only the time counts: the library's ten may be over after 3 s
LONGEST_WAIT_S = 5  # before a request is repeated
CONNECT_S = 5
REQUEST_S = 60  # a PUT of a part has at most 64 MiB
REREAD_S = 60.0  # the file of credentials is read again after this time


def open_store(address: StorageAddress) -> ObjectStore:
    """obstore's client of the prefix."""
    seconds = datetime.timedelta(seconds=1)
    client: Any = {"connect_timeout": CONNECT_S * seconds, "timeout": REQUEST_S * seconds}
    backoff = {"max_backoff": LONGEST_WAIT_S * seconds}
    retry: Any = {"retry_timeout": RETRY_S * seconds, "max_retries": MOST_RETRIES, "backoff": backoff}
    if address.scheme != "s3":
        return store_at(address.root, client_options=client, retry_config=retry)
    if address.endpoint.startswith("http://"):
        client["allow_http"] = True
    known = {"endpoint": address.endpoint, "region": address.region}
    config: Any = {name: text for name, text in known.items() if text}
    keys = functools.partial(_credential, address.credentials_file) if address.credentials_file else None
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
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


def open_arrow(address: StorageAddress) -> FileSystem:
    """Arrow's client of the bucket."""
    return _arrow(address, int(time.monotonic() // REREAD_S))


@functools.lru_cache(maxsize=4)
def _arrow(address: StorageAddress, moment: int) -> FileSystem:
    """Arrow's client. A `moment` makes a new one, because it reads the file of credentials only once."""
    from pyarrow import fs

    if address.scheme != "s3":
        return fs.FileSystem.from_uri(address.root)[0]
    options: dict[str, Any] = {"region": address.region or None}
    if address.endpoint:
        scheme, _, host = address.endpoint.partition("://")
        options |= {"endpoint_override": host, "scheme": scheme}
    if address.credentials_file:
        keys = read_credentials(address.credentials_file)
        options |= {"access_key": keys["aws_access_key_id"], "secret_key": keys["aws_secret_access_key"]}
        options |= {"session_token": keys.get("aws_session_token")}
    return fs.S3FileSystem(
        connect_timeout=CONNECT_S, request_timeout=REQUEST_S, **{k: v for k, v in options.items() if v}
    )
