"""Where a lake is, and how it is reached."""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass
from pathlib import Path

from spark_app.model.errors import ConfigurationError

UNTESTED = ("gs", "az")  # kinds of object stores that the libraries know
ADDRESS = re.compile(
    r"(s3|gs|az)://[a-z0-9][a-z0-9.-]*(/[\w.-]+)*/?", re.ASCII
)  # readers differ about other characters
SETTING = "store.credentials_file"
NAMES = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


@dataclass(frozen=True)
class Place:
    """It holds no secret, so that it may travel to workers.

    Attributes:
        root: a folder, or the address of a bucket and a prefix in it: s3://bucket/prefix.
        endpoint: address of the object store; "" = the one of the cloud.
        region: of the bucket; "" = that of the environment.
        credentials_file: where the keys are, as AWS's own tools keep them; "" = in the environment, or given by the
            role of the machine.
        local: folder on this machine for what a bucket cannot hold; "" = one in the user's home.
    """

    root: str
    endpoint: str = ""
    region: str = ""
    credentials_file: str = ""
    local: str = ""

    @property
    def scheme(self) -> str:
        """The kind of object store; "" for a folder."""
        scheme, separator, _ = self.root.partition("://")
        return scheme if separator else ""

    @property
    def bucket(self) -> str:
        return self.root.partition("://")[2].partition("/")[0]

    @property
    def prefix(self) -> str:
        """The prefix of all keys in the bucket, without "/" at its ends."""
        return self.root.partition("://")[2].partition("/")[2].strip("/")


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
