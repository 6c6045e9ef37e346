"""The keys of an object store, in a file that only its owner may read. The settings name it."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

from spark_app.model.errors import ConfigurationError

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
