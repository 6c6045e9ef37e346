"""Session fixtures: the places where a lake may be, each with its own server: local disk, moto, SeaweedFS.

Servers take seconds to start, so they are shared: each `storage` is a prefix of its own. A test that kills a server
makes its own: `with Moto(tmp_path) as server`.
"""

import http.client
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local.objectstore import BUCKET, REGION, ObjectStore, StoreServer, write_credentials
from scripts.local.ports import HOST
from scripts.local.store_proxy import StoreProxy
from spark_app.model.place import Place
from spark_app.storage.objects import ObjectStorage
from spark_app.storage.opening import open_storage
from spark_app.storage.storage import Storage


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


def place_in(server: Moto | ObjectStore, endpoint: str = "") -> Place:
    """A new prefix in the bucket of a server.

    Args:
        endpoint: of a proxy before the server; "" = none.
    """
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return Place(address, endpoint or server.url, REGION, str(server.credentials_file))


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


SEAWEEDFS = pytest.param("seaweedfs", marks=pytest.mark.stack)
STORES = ["moto", SEAWEEDFS]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Moto | ObjectStore:
    """Each object store."""
    server: Moto | ObjectStore = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=["disk", *STORES])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "disk":
        return open_storage(Place(str(tmp_path / "lake")))
    return open_storage(place_in(request.getfixturevalue(request.param)))


@pytest.fixture
def proxy(store: Moto | ObjectStore) -> Iterator[StoreProxy]:
    with StoreProxy(store.url) as proxy:
        yield proxy


@pytest.fixture
def spoilt(store: Moto | ObjectStore, proxy: StoreProxy) -> ObjectStorage:
    """An empty storage whose requests go through `proxy`."""
    return ObjectStorage(place_in(store, proxy.url))
