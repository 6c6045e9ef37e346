"""An object store that does not do what it is asked for: the records are not to blame, and a restart may help."""

from __future__ import annotations

import errno
import re

from spark_app.model.errors import UnreachableError

SAID = "the object store did not do what was asked"
DENIED = "the object store refuses access"
# Arrow and delta-rs give up after seconds, with errors of no class of their own. A missing file is none of these.
ARROW = re.compile(r"AWS Error (?!NO_SUCH_KEY|RESOURCE_NOT_FOUND)[A-Z_]+")
DELTA_RS = "Generic S3 error"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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
    """Whether an error of any library, such as Spark's about a worker, reports that the store is not to be had."""
    text = str(error)
    return (
        isinstance(error, StoreError)
        or any(words in text for words in (SAID, DENIED, DELTA_RS))
        or ARROW.search(text) is not None
    )


def store_error(error: BaseException, uri: str, endpoint: str = "") -> StoreError | PermissionError:
    """The error of this module for one of Arrow's or delta-rs' about the store."""
    if isinstance(error, StoreError | PermissionError):
        return error
    if "ACCESS_DENIED" in str(error):
        return denied(uri)
    return failed(uri, reason(error), endpoint)


def reason(error: BaseException) -> str:
    """The text of a library, in one line of at most 300 characters."""
    return " ".join(COLOURS.sub("", str(error)).split())[:300]
