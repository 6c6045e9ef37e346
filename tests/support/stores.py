"""Session fixtures: the object stores, moto and SeaweedFS.

Servers take seconds to start, so they are shared: each test has a prefix of its own. A test that kills a server makes
its own: `with Moto(tmp_path) as server`.
"""

import http.client
import sys
import uuid
from collections.abc import Iterator

import pytest

from scripts.local.objectstore import BUCKET, REGION, ObjectStore, StoreServer, write_credentials
from scripts.local.ports import HOST
from spark_app.model.address import StorageAddress


class Moto(StoreServer):
    """S3's API in memory, for fast tests. It takes any keys."""

    name = "moto"
    option = "none"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_credentials(self.credentials_file, "any", "key")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]

    def is_ready(self) -> bool:
        """It makes the bucket."""
        try:
            connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
            connection.request("PUT", f"/{BUCKET}")
            return connection.getresponse().status == 200
        except OSError:
            return False


def address_in(server: Moto | ObjectStore, endpoint: str = "") -> StorageAddress:
    """A new prefix in the bucket of a server.

    Args:
        endpoint: of a proxy before the server; "" = none.
    """
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return StorageAddress(address, endpoint or server.url, REGION, str(server.credentials_file))


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


SEAWEEDFS = pytest.param("seaweedfs", marks=pytest.mark.stack)
