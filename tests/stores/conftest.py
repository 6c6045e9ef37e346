"""Where a lake or the files of a source may be. Tests on SeaweedFS are `stack` tests, all others unit tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local.objectstore import ObjectStore
from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.storage import Storage
from spark_app.model.address import StorageAddress
from tests.support.exports import BucketExports, DiskExports, Exports
from tests.support.stores import SEAWEEDFS, Moto, address_in

STORES = ["moto", SEAWEEDFS]
VERBS = ("test_stores_verbs.py", "test_stores_race.py")  # prove what SeaweedFS does


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is built on these verbs runs on moto in the fast tier."""
    for item in items:
        if (
            item.path.parent == Path(__file__).parent
            and item.path.name not in VERBS
            and item.get_closest_marker("stack")
        ):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Moto | ObjectStore:
    """Each object store."""
    server: Moto | ObjectStore = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=["disk", *STORES])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    if request.param == "disk":
        return open_storage(StorageAddress(str(tmp_path / "lake")))
    return open_storage(address_in(request.getfixturevalue(request.param)))


@pytest.fixture(params=["disk", *STORES])
def exports(request: pytest.FixtureRequest, tmp_path: Path) -> Exports:
    """An empty folder of each kind."""
    if request.param == "disk":
        return DiskExports(tmp_path / "in")
    return BucketExports(address_in(request.getfixturevalue(request.param)))


@pytest.fixture
def proxy(store: Moto | ObjectStore) -> Iterator[StoreProxy]:
    with StoreProxy(store.url) as proxy:
        yield proxy


@pytest.fixture
def spoilt(store: Moto | ObjectStore, proxy: StoreProxy) -> ObjectStorage:
    """An empty storage whose requests go through `proxy`."""
    return ObjectStorage(address_in(store, proxy.url))
