"""Clients of an object store: obstore's for writes and state, Arrow's for files of tables.

Both read the file of credentials again every minute, so that keys can be replaced while the app runs.
"""

from __future__ import annotations

import datetime
import functools
import time
from typing import TYPE_CHECKING, Any

from obstore.store import ObjectStore, S3Store
from obstore.store import from_url as store_at

from spark_app.lake.files.store_keys import read_credentials
from spark_app.model.place import Place

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

RETRY_S = 60  # a request is repeated for so long
MOST_RETRIES = 10_000  # only the time counts: the library's ten may be over after 3 s
LONGEST_WAIT_S = 5  # before a request is repeated
CONNECT_S = 5
REQUEST_S = 60  # a PUT of a part has at most 64 MiB
REREAD_S = 60.0  # the file of credentials is read again after this time


def open_store(place: Place) -> ObjectStore:
    """obstore's client of the prefix."""
    seconds = datetime.timedelta(seconds=1)
    client: Any = {"connect_timeout": CONNECT_S * seconds, "timeout": REQUEST_S * seconds}
    backoff = {"max_backoff": LONGEST_WAIT_S * seconds}
    retry: Any = {"retry_timeout": RETRY_S * seconds, "max_retries": MOST_RETRIES, "backoff": backoff}
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


def open_arrow(place: Place) -> FileSystem:
    """Arrow's client of the bucket."""
    return _arrow(place, int(time.monotonic() // REREAD_S))


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
