"""An object store that does not do what it is asked for: the records are not to blame, and a restart may help."""

from __future__ import annotations

import errno

from spark_app.model.errors import UnreachableError

SAID = "the object store did not do what was asked"
DENIED = "the object store refuses access"


class StoreError(UnreachableError, OSError):
    """The object store does not answer, or cannot do what it is asked for."""


class NoBucket(StoreError):
    """There is no such bucket, or the store has only just been started."""


def failed(uri: str, why: str, endpoint: str) -> StoreError:
    return StoreError(f"{SAID} of {uri} ({why}): check {endpoint or 'the network'}")


def no_bucket(uri: str, endpoint: str) -> NoBucket:
    bucket = uri.partition("://")[2].partition("/")[0]
    return NoBucket(f"{SAID} of {uri} (there is no bucket {bucket}): check {endpoint or 'the address'}")


def denied(uri: str) -> PermissionError:
    return PermissionError(errno.EACCES, f"{DENIED}: check the keys", uri)


def is_store_error(error: BaseException) -> bool:
    """Whether an error of any library, such as Spark's about a worker, reports one of these."""
    return any(words in str(error) for words in (SAID, DENIED))
