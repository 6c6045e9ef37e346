"""Whether a registry that gave no answer refuses us: then asking again is of no use, and a setting has to change."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

LOGIN = "check registry.username and registry.password_file, and what that user may read"
LOGIN_STATUS = frozenset({401, 403})
# What OpenSSL calls it -> what to look at. Everything else that TLS complains of is about the client's certificate.
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def remedy_of(status: int, error: BaseException | None) -> str | None:
    """What to check where the HTTP status, or the failed handshake that the error came from, is a refusal; None where
    the registry may answer later."""
    if status in LOGIN_STATUS:
        return LOGIN
    return next((_tls_remedy(cause) for cause in _causes(error) if _is_tls(cause)), None)


def _is_tls(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError) and not isinstance(error, CUT_OFF)


def _tls_remedy(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "check registry.ca_file, and the registry's certificate"
    if getattr(error, "reason", None) in NOT_TLS:
        return "check registry.url: it answers without TLS, as http://"
    return "check registry.certificate_file and registry.key_file"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
