"""Recognises that the registry denies access: then a retry is useless, and a setting must change."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

LOGIN = "check registry.username and registry.password_file, or registry.token_file, and what that user may read"
LOGIN_STATUS = frozenset({401, 403})
CERTIFICATE_OF_REGISTRY = "check registry.ca_file, and the registry's certificate"
# Part of OpenSSL's error name -> what to check. All other failures of a handshake may be temporary.
TLS = {
    "WRONG_VERSION_NUMBER": "check registry.url: the server answers without TLS, so use http://",
    "HTTP_REQUEST": "check registry.url: the server answers without TLS, so use http://",
    "PROTOCOL": "check registry.url: the server offers no TLS version that this machine accepts",
    "CERTIFICATE": "check registry.certificate_file and registry.key_file",
    "UNKNOWN_CA": "check registry.certificate_file: the registry does not trust its authority",
    "HANDSHAKE_FAILURE": "check registry.certificate_file and registry.key_file",
    "ACCESS_DENIED": "check registry.certificate_file, and what its owner may read",
}


def remedy_of(status: int, error: BaseException | None) -> str | None:
    """What to check if the HTTP status or a failed handshake behind `error` means that access is denied; None if a
    retry may succeed."""
    if status in LOGIN_STATUS:
        return LOGIN
    return next(filter(None, map(_tls_remedy, _causes(error))), None)


def _tls_remedy(error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATE_OF_REGISTRY
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return next((remedy for part, remedy in TLS.items() if part in reason), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
