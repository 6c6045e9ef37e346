"""Reference tables in a bucket: on moto and, in the stack tests, on SeaweedFS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from scripts.local.objectstore import ObjectStore
from scripts.local.ports import free_port
from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files import object_clients
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.reference_files import KEY, read_copy
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.settings.models import Settings
from spark_app.settings.silver import Reference
from spark_app.tables.references.source_table import ReferenceRefused, SourceTable
from spark_app.tables.references.tables import ReferenceTables
from tests.support.references import section
from tests.support.stores import Moto, address_in

PLAYERS = pa.table({"player": ["ann", "bob"], "country": ["FR", None], "tier": [1, 2]})
ROWS = [("ann", "FR", 1), ("bob", None, 2)]


@pytest.fixture
def address(store: Moto | ObjectStore) -> StorageAddress:
    return address_in(store)


def put(address: StorageAddress, key: str, table: pa.Table = PLAYERS) -> None:
    with open_storage(address).put_file(key) as file:
        pq.write_table(table, file)


def put_delta(address: StorageAddress, table: pa.Table = PLAYERS) -> None:
    options = open_storage(address).delta_options
    write_deltalake(address.root, table, mode="overwrite", schema_mode="overwrite", storage_options=options)


def source(address: StorageAddress, key: str = "") -> SourceTable:
    root = f"{address.root}/{key}" if key else address.root
    return SourceTable(replace(address, root=root), "player", ["country", "tier"])


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_delta_table_a_folder_and_a_file_are_read_alike(address: StorageAddress) -> None:
    put_delta(replace(address, root=f"{address.root}/delta"))
    put(address, "parts/1.parquet", PLAYERS.slice(0, 1))
    put(address, "parts/2.parquet", PLAYERS.slice(1))
    put(address, "parts/_3.parquet")
    put(address, "parts/deeper/4.parquet")
    for key in ("delta", "parts", "parts/"):
        assert rows(source(address, key).read()) == ROWS
    assert rows(source(address, "parts/2.parquet").read()) == ROWS[1:]


def test_a_version_changes_with_the_table_alone(address: StorageAddress) -> None:
    put(address, "parts/1.parquet")
    folder, file = source(address, "parts"), source(address, "parts/1.parquet")
    first = folder.version(), file.version()
    put(address, "parts/1.parquet", PLAYERS.set_column(2, "tier", pa.array([2, 1])))  # at once, and as large as before
    second = folder.version(), file.version()
    put(address, "parts/2.parquet")
    third = folder.version(), file.version()
    assert len({first[0], second[0], third[0]}) == 3
    assert first[1] != second[1] == third[1]
    put_delta(replace(address, root=f"{address.root}/delta"))
    assert source(address, "delta").version().startswith("0 of Delta table")


def test_what_is_not_there_is_refused(address: StorageAddress) -> None:
    for nothing in (
        source(address),
        source(address, "x.parquet"),
        source(replace(address, root="s3://no-such-bucket/x")),
    ):
        for look in (nothing.version, nothing.read):
            with pytest.raises(ReferenceRefused, match=r"there is no Delta table|there is no bucket"):
                look()


def follow(lake: Lake, path: str) -> ReferenceTables:
    return ReferenceTables(lake, {"players": Reference(**section(path)["players"])})


def test_the_last_good_version_stays_while_the_store_is_gone(
    store: Moto | ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_in(store)
    put_delta(address)
    lake = Lake(replace(address, root=str(tmp_path)))
    before = follow(lake, address.root).versions()["players"]
    assert read_copy(lake.storage, "players", before.content).to_pylist()[0] == {KEY: "ann", "country": "FR", "tier": 1}
    monkeypatch.setattr(object_clients, "RETRY_S", 0.2)
    gone = Lake(replace(lake.address, endpoint=f"http://127.0.0.1:{free_port()}"))
    tables = follow(gone, address.root)
    assert tables.versions()["players"].content == before.content
    assert "the object store did not do what was asked" in tables.describe()["players"]["refused"]
    put_delta(address, PLAYERS.slice(1))
    assert follow(lake, address.root).versions()["players"].rows == 1


def test_a_store_that_is_gone_at_the_first_start_is_no_wrong_setting(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restart policy starts the app again; after a wrong setting it would not."""
    monkeypatch.setattr(object_clients, "RETRY_S", 0.2)
    address = replace(address_in(moto), root=str(tmp_path), endpoint=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UnreachableError, match="did not do what was asked"):
        follow(Lake(address), "s3://bucket/players").versions()


@pytest.mark.parametrize("key", ["delta", "parts"])
def test_a_store_that_goes_in_the_middle_of_a_read_is_no_damaged_table(
    moto: Moto, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_clients, "RETRY_S", 0.2)
    with StoreProxy(moto.url) as proxy:
        address = address_in(moto, proxy.url)
        put_delta(replace(address, root=f"{address.root}/delta"))
        put(address, "parts/1.parquet")
        proxy.forget()
        assert rows(source(address, key).read()) == ROWS
        first = next(n for n, one in enumerate(proxy.requests) if one.verb == "GET" and one.key.endswith(".parquet"))
        proxy.forget()
        proxy.spoil("reset", skip=first, times=1000)
        with pytest.raises(UnreachableError, match="did not do what was asked"):
            source(address, key).read()


def test_keys_that_may_not_read_the_table_are_named(moto: Moto, tmp_path: Path) -> None:
    with StoreProxy(moto.url) as proxy:
        address = address_in(moto, proxy.url)
        put_delta(address)
        proxy.spoil("status", times=1000, status=403, code="AccessDenied")
        with pytest.raises(ConfigurationError, match=r"reference\.players: s3://.*refuses access: check the keys"):
            follow(Lake(replace(address, root=str(tmp_path))), address.root).versions()


def test_addresses_that_readers_would_not_understand_are_refused() -> None:
    for path in ("s3://b/a b", "ftp://b/x"):
        with pytest.raises(ValueError, match=r"reference\.players\.path: .*neither a folder nor s3"):
            Settings(reference=section(path))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"reference\.players\.path: .*never tested"):
        Settings(reference=section("gs://b/x"))  # type: ignore[arg-type]
