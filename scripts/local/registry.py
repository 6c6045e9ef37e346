"""A real schema registry (Apicurio with Confluent's API), loopback only.

`with Registry(state, port) as registry: registry.url`. The data is in <state>/registry, an H2 file; it is kept.
"""

import http.client
import json
import os
import shutil
import tarfile
import uuid
from functools import cached_property
from pathlib import Path

from scripts.local.artifacts import fingerprint, read
from scripts.local.downloads import CACHE, ensure, locked
from scripts.local.errors import LocalError
from scripts.local.ports import HOST, free_ports
from scripts.local.server import JVM, Server

API = "/apis/ccompat/v7"
LIMIT_BYTES = 1 << 20


class Registry(Server):
    """The registry; it is ready when it lists subjects under the name from its own state folder."""

    name = "registry"
    option = "--registry-port"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{API}"

    @cached_property
    def _app(self) -> Path:
        return unpack()

    @cached_property
    def _identity(self) -> str:
        """A name that distinguishes this registry from another one on the same port."""
        path = self.folder / "identity"
        if not path.is_file():
            path.write_text(f"protolake-{uuid.uuid4()}")
        return path.read_text()

    def prepare(self) -> None:
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        [self._management_port] = free_ports(1, self.port)

    def command(self) -> list[str]:
        archive = self.java.archive_options(self.name, fingerprint(read(self.name)) + str(self._app))
        settings = [f"-D{key}={value}" for key, value in self._settings().items()]
        return [self.java.command, *JVM, *archive, *settings, "-jar", str(self._app / "quarkus-run.jar")]

    def is_ready(self) -> bool:
        try:
            return self._get(f"{API}/subjects") is not None and self._is_ours()
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def _is_ours(self) -> bool:
        about = self._get("/apis/registry/v3/system/info")
        return isinstance(about, dict) and str(about.get("name")).startswith(self._identity)

    def _get(self, path: str) -> object:
        """The registry's answer (JSON), or None unless the status is 200. No proxy is used."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return json.loads(response.read(LIMIT_BYTES)) if response.status == 200 else None
        finally:
            connection.close()

    def _settings(self) -> dict[str, object]:
        temporary = self.folder / "tmp"
        return {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self.port,
            "quarkus.management.host": HOST,
            "quarkus.management.port": self._management_port,
            "quarkus.log.level": "WARN",
            'quarkus.log.category."io.apicurio".level': "WARN",
            "quarkus.http.access-log.enabled": "false",
            "apicurio.app.name": self._identity,
            "apicurio.datasource.url": f"jdbc:h2:file:{self.folder}/db;DB_CLOSE_ON_EXIT=FALSE",
            "apicurio.datasource.jdbc.initial-size": 1,
            "apicurio.datasource.jdbc.min-size": 1,
            "apicurio.datasource.jdbc.max-size": 10,
            "apicurio.storage.snapshot.location": temporary,
            "apicurio.import.work-dir": temporary,
            "java.io.tmpdir": temporary,
        }


def unpack() -> Path:
    """The folder of the unpacked registry; unpacks it if it does not exist."""
    artifacts = read("registry")
    folder = CACHE / "registry" / fingerprint(artifacts)[:12]
    if not folder.is_dir():
        archive = ensure("registry") / artifacts[0].file
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / ".lock"):
            if not folder.is_dir():
                _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    except (OSError, tarfile.TarError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise LocalError(
            f"cannot unpack {archive}: {error}; is the disk full? Otherwise delete the file and try again"
        ) from error
    partial.replace(folder)
