"""An object store that does not do what it is asked for: the records are not to blame, and a restart may help."""

from __future__ import annotations

import errno

from spark_app.model.errors import UnreachableError

SAID = "the object store did not do what was asked"
DENIED = "the object store refuses access"


class StoreError(UnreachableError, OSError):
    """The object store does not answer, or cannot do what it is asked for."""


def failed(uri: str, why: str, endpoint: str) -> StoreError:
    return StoreError(f"{SAID} of {uri} ({why}): check {endpoint or 'the network'}")


def denied(uri: str) -> PermissionError:
    return PermissionError(errno.EACCES, f"{DENIED}: check the keys", uri)


def is_store_error(error: BaseException) -> bool:
    """Whether an error of any library, such as Spark's about a worker, reports one of these."""
    return any(words in str(error) for words in (SAID, DENIED))
