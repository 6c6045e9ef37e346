"""Where a lake is, and how it is reached."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

UNTESTED = ("gs", "az")  # kinds of object stores that the libraries know
ADDRESS = re.compile(
    r"(s3|gs|az)://[a-z0-9][a-z0-9.-]*(/[\w.-]+)*/?", re.ASCII
)  # readers differ about other characters


@dataclass(frozen=True)
class StorageAddress:
    """It contains no secret, so that it may travel to workers.

    Attributes:
        root: a folder, or the address of a bucket and a prefix in it: s3://bucket/prefix.
        endpoint: address of the object store; "" = the one of the cloud.
        region: of the bucket; "" = that of the environment.
        credentials_file: where the keys are, as AWS's own tools keep them; "" = in the environment, or given by the
            role of the machine.
        local: folder on this machine for what a bucket cannot store; "" = one in the user's home.
        lease_s: seconds after which a lease in a bucket that is not renewed may be acquired.
    """

    root: str
    endpoint: str = ""
    region: str = ""
    credentials_file: str = ""
    local: str = ""
    lease_s: float = 30.0

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

    @property
    def local_folder(self) -> str:
        """The folder on this machine for the files of a lake that a bucket cannot store."""
        if self.local:
            return os.path.abspath(self.local)
        states = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        digest = hashlib.sha256(f"{self.endpoint} {self.root}".encode()).hexdigest()[:12]
        return os.path.join(states, "protolake", f"{self.bucket}-{digest}")

    @staticmethod
    def of(root: str | os.PathLike[str] | StorageAddress) -> StorageAddress:
        return root if isinstance(root, StorageAddress) else StorageAddress(os.fspath(root))
