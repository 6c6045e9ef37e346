"""The folder of a file source in a bucket: what its store may answer, and who may know its keys."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from deltalake import DeltaTable, write_deltalake

from scripts.local.objectstore import ObjectStore
from scripts.local.store_proxy import Kind, StoreProxy
from spark_app.lake.files import object_clients
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.files.object_clients import read_credentials
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.store_errors import StoreError
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.settings.models import Settings
from spark_app.sources.files import bucket_folder
from spark_app.sources.files.bucket_folder import BucketFolder
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.delta_export import DeltaListing
from spark_app.sources.files.folder import Changed, open_folder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.sources.files.scanning import JSON, PARQUET, scan
from spark_app.units.driver.feeds import FileFeed
from spark_app.units.driver.open_lake import OpenLake
from tests.support.exports import BucketExports
from tests.support.file_sources import framed, parquet_bytes, parquet_table
from tests.support.stores import Moto, address_in

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")
NAMES = ["a b.json", "d/e/f.json", "h#?&.json", "p+q.json", "x%41.json", "~t.json", "ü/é.json"]


@pytest.fixture
def bucket(store: Moto | ObjectStore) -> BucketExports:
    return BucketExports(address_in(store))


def test_objects_have_the_names_that_their_writers_gave_them(bucket: BucketExports) -> None:
    for name in NAMES:
        bucket.write(name, name.encode())
    folder = open_folder(bucket.address)
    found = {one.key: one for one in folder.files()}
    assert sorted(found) == sorted(NAMES)
    assert [folder.get(name) for name in NAMES] == [name.encode() for name in NAMES]
    assert folder.look_at_all([*NAMES, "other"]) == found  # a list and an answer about one say the same
    assert [folder.names(name) for name in ("d", "d/e")] == [[], ["f.json"]]


def test_a_list_has_all_pages_and_begins_after_a_key(bucket: BucketExports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_folder, "PAGE", 7)
    names = [f"d{n % 3}/{n:02d}.json" for n in range(30)]
    for name in names:
        bucket.write(name, b"x")
    folder = open_folder(bucket.address)
    assert [one.key for one in folder.files()] == sorted(names)
    assert [one.key for one in folder.files("d1/07.json")] == [name for name in sorted(names) if name > "d1/07.json"]
    assert folder.names("d1", "10.json") == ["13.json", "16.json", "19.json", "22.json", "25.json", "28.json"]


def test_a_large_object_is_read_in_parts_of_one_content(bucket: BucketExports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_folder, "AHEAD_BYTES", 1000)
    folder, data = BucketFolder(bucket.address), parquet_bytes(framed(2000), group=500)
    bucket.write("a.parquet", data)
    (listed,) = folder.files()
    with folder.open_input(listed) as file:
        assert b"".join(iter(lambda: file.read(700), b"")) == data
        file.seek(len(data) - 10)
        assert (file.read(100), file.size()) == (data[-10:], len(data))
    assert [piece.rows for piece in scan(folder, listed, PARQUET, COLUMNS).pieces] == [500] * 4
    with folder.open_input(listed) as file:
        file.read(700)
        bucket.write("a.parquet", data[::-1])
        with pytest.raises(Changed):
            file.read(700)


def test_a_store_that_ignores_the_condition_is_found_out(moto: Moto) -> None:
    with StoreProxy(moto.url) as proxy:
        address = address_in(moto, proxy.url)
        bucket, folder = BucketExports(address), BucketFolder(address)
        bucket.write("a.json", b"1\n")
        (listed,) = folder.files()
        bucket.write("a.json", b"2\n")
        fault = proxy.spoil("blind", "GET")
        with pytest.raises(Changed):
            scan(folder, listed, JSON, COLUMNS)
    assert fault.done == 1


def test_a_store_that_is_down_is_not_taken_for_a_broken_file(
    bucket: BucketExports, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write("a.json", b"1\n" * 50)  # less is no Parquet, whatever the store says
    (listed,) = open_folder(bucket.address).files()
    monkeypatch.setattr(object_clients, "RETRY_S", 0)
    away = BucketFolder(replace(bucket.address, endpoint="http://127.0.0.1:9"))
    for kind in (JSON, PARQUET):
        with pytest.raises(StoreError, match="did not do what was asked"):
            scan(away, listed, kind, COLUMNS)


@pytest.mark.parametrize("kind", ["half", "lost"])
def test_an_answer_that_is_cut_is_asked_for_again(spoilt: ObjectStorage, proxy: StoreProxy, kind: Kind) -> None:
    folder = BucketFolder(spoilt.address)
    BucketExports(spoilt.address).write("a.json", b"1\n")
    for verb, ask in (("LIST", lambda: list(folder.files())), ("GET", lambda: folder.get("a.json"))):
        fault = proxy.spoil(kind, verb)
        assert ask()
        assert fault.done == 1


def test_a_round_without_a_new_object_is_one_request(spoilt: ObjectStorage, proxy: StoreProxy) -> None:
    bucket, folder = BucketExports(spoilt.address), BucketFolder(spoilt.address)
    for name in ("a.json", "b.json"):
        bucket.write(name, b"1\n")
    proxy.requests.clear()
    assert [one.key for one in folder.files()] == ["a.json", "b.json"]
    assert [request.verb for request in proxy.requests] == ["LIST"]


def test_a_name_that_is_no_path_is_refused_by_name(moto: Moto) -> None:
    address = address_in(moto)
    keys = read_credentials(address.credentials_file)
    client = boto3.client("s3", endpoint_url=moto.url, region_name=address.region, **keys)
    client.put_object(Bucket=address.bucket, Key=f"{address.prefix}/a//b.json", Body=b"x")
    with pytest.raises(ConfigurationError, match=r"source\.path: .*a//b\.json.*: give it another name"):
        list(open_folder(address).files())


def test_a_folder_in_a_bucket_knows_no_key_and_no_client_when_it_travels(bucket: BucketExports) -> None:
    bucket.write("a.json", b"1\n")
    folder = BucketFolder(bucket.address)
    list(folder.files())
    travelling = pickle.dumps(folder)
    for secret in read_credentials(bucket.address.credentials_file).values():
        assert secret.encode() not in travelling
    assert [one.key for one in pickle.loads(travelling).files()] == ["a.json"]


def feed_of(address: StorageAddress, lake: str, folder: Path) -> FileFeed:
    """`lake` is what the settings say; `folder` holds what the feed was opened with."""
    store = {"endpoint": address.endpoint, "region": address.region, "credentials_file": address.credentials_file}
    settings = Settings(source={"kind": "files", "path": address.root}, lake={"path": lake}, store=store)  # type: ignore[arg-type]
    return FileFeed(settings, OpenLake.of(Lake(folder), settings), available_now=True)


def test_the_bucket_must_be_there_and_apart_from_the_lake(bucket: BucketExports, tmp_path: Path) -> None:
    address = bucket.address
    feed_of(address, str(tmp_path), tmp_path).look()
    feed_of(address, f"{address.root}2/lake", tmp_path).look()
    for lake in (address.root, f"{address.root}/lake", f"s3://{address.bucket}"):
        with pytest.raises(ConfigurationError, match="must not be in one another"):
            feed_of(address, lake, tmp_path).look()


def test_a_bucket_that_is_not_there_is_named(moto: Moto, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"source\.path: there is no bucket s3://nowhere/in"):
        feed_of(replace(address_in(moto), root="s3://nowhere/in"), str(tmp_path), tmp_path).look()


def test_an_address_that_readers_differ_about_is_refused() -> None:
    for path, why in (("s3://b/a b", "neither a folder nor"), ("gs://b/a", "was never tested")):
        with pytest.raises(ValueError, match=rf"source\.path: .*{why}"):
            Settings(source={"kind": "files", "path": path})  # type: ignore[arg-type]


def test_a_delta_table_in_a_bucket_is_followed_by_its_log(bucket: BucketExports, tmp_path: Path) -> None:
    folder, ledger = BucketFolder(bucket.address), IngestedFiles(LocalStorage(tmp_path), "taken")
    options = {**folder.delta_options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    write_deltalake(bucket.address.root, parquet_table(framed(2)), storage_options=options)

    def find() -> list[str]:
        """The files of one unit, which counts as taken."""
        listing = DeltaListing(folder, ledger, LocalStorage(tmp_path), "taken", -1, [])
        found = [listed for listed, _ in listing.find([], lambda listed: False)]
        files = [IngestedFile(one.key, one.size, one.changed, one.time, "", 0, 2, 2, one.tag) for one in found]
        for file in files:
            assert scan(folder, next(one for one in found if one.key == file.key), PARQUET, COLUMNS).rows == 2
        ledger.add(ledger.unit + 1, files)
        listing.note_ingested(files)
        return [file.key for file in files]

    first = find()
    assert (len(first), find()) == (1, [])
    write_deltalake(bucket.address.root, parquet_table(framed(2)), mode="append", storage_options=options)
    assert len(find()) == 1
    DeltaTable(bucket.address.root, storage_options=options).delete()
    with pytest.raises(ContractError, match="changes or deletes rows"):
        find()
