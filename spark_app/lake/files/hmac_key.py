"""The key of `hmac()`: a file that only its owner may read. The settings name it, and only its fingerprint travels."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from spark_app.model.errors import ConfigurationError

SETTING = "silver.hmac_key_file"
SHORTEST = 16  # bytes
LABEL = b"protolake key id"


def read_key(path: str) -> bytes:
    """The content of the file, without one newline at its end.

    Raises:
        ConfigurationError: the file cannot be read, is open to others, or is too short.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read()
    except OSError as error:
        raise ConfigurationError(f"{SETTING}: cannot read {path} ({error.strerror})") from None
    if mode & 0o077:
        raise ConfigurationError(f"{SETTING}: {path} is open to other users; run chmod 600 {path}")
    key = key.removesuffix(b"\n")
    if len(key) < SHORTEST:
        raise ConfigurationError(f"{SETTING}: {path} has {len(key)} bytes, and a key has at least {SHORTEST}")
    return key


def fingerprint_of(key: bytes) -> str:
    """16 hex digits that name a key and reveal nothing else about it."""
    return hmac.digest(key, LABEL, hashlib.sha256).hex()[:16]
