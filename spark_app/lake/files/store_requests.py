"""One request to an object store: it is repeated if its answer was cut, and its error is one of ours."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, PreconditionError
from obstore.exceptions import UnauthenticatedError as NoCredentialsError

from spark_app.lake.files import object_clients as clients
from spark_app.lake.files.store_errors import denied, failed, no_bucket
from spark_app.model.errors import first_message_line

T = TypeVar("T")

AGAIN_S = 0.1  # before a request is repeated that the library does not repeat
NO_BUCKET, FORBIDDEN = "NoSuchBucket", "403 Forbidden"  # the library has no exceptions of their own for a list
CUT = "HTTP error"  # so obstore's texts begin about a connection, and otherwise they give the answer's status


def ask(uri: str, endpoint: str, request: Callable[[], T]) -> T:
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
    deadline = time.monotonic() + clients.RETRY_S
    while True:
        try:
            return request()
        except BaseError as error:
            if CUT not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)


def missing(uri: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
