"""An object store that is gone for a moment: no file is damaged, no setting wrong, and no process pushed aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from scripts.local.objectstore import ObjectStore
from scripts.local.ports import free_port
from scripts.local.store_proxy import StoreProxy
from spark_app.app.cli.exits import cause_of_end, report_unexpected
from spark_app.lake.files import object_clients
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.objects import ObjectStorage
from spark_app.lake.files.store_errors import StoreError, is_store_error
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, ContractError, ExitCode, LeaseLost, UnreachableError
from spark_app.recovery.backtest.scan import scan
from spark_app.recovery.requests import Request, load_progress, save_progress
from spark_app.units.driver.open_lake import count_open_causes
from spark_app.units.driver.worker_check import _try
from spark_app.units.spark.cluster import cause_of
from tests.support.stores import Moto, address_in
from tests.unit.units.test_bucket_lake import lake_at, play

TABLE = pa.table({"cause": ["a", "b"]})


@pytest.fixture
def gone(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> StorageAddress:
    """An address at which no store answers."""
    monkeypatch.setattr(object_clients, "RETRY_S", 0.2)
    return replace(address_in(moto), endpoint=f"http://127.0.0.1:{free_port()}")


def on_two_machines(store: Moto | ObjectStore, folder: Path, lease_s: float) -> tuple[Lake, Lake]:
    """One lake, as it is seen from two machines."""
    address = address_in(store)
    lakes = [Lake(replace(address, local=str(folder / name), lease_s=lease_s)) for name in ("one", "other")]
    for lake in lakes:
        lake.prepare()
    return lakes[0], lakes[1]


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_trial_whose_answer_is_lost_finds_no_fault(spoilt: ObjectStorage, proxy: StoreProxy, skip: int) -> None:
    lost = proxy.spoil("lost", "PUT", skip=skip)
    spoilt.probe("trial")
    assert lost.done == 1
    assert spoilt.list("") == []


def test_errors_of_libraries_about_the_store_are_told_from_those_about_files(
    store: Moto | ObjectStore, gone: StorageAddress, capsys: pytest.CaptureFixture[str]
) -> None:
    address = address_in(store)
    write_deltalake(f"{address.root}/t", TABLE, storage_options=open_storage(address).delta_options)
    open_storage(address).replace("damaged.parquet", b"PAR1 and no more")
    for here, is_stores in ((address, False), (gone, True)):
        storage = open_storage(here)
        name = "t/no-such-table" if here is address else "t"
        for read in (
            lambda: pq.read_table("damaged.parquet", filesystem=storage.arrow()),  # noqa: B023
            lambda: pq.read_table("no-such.parquet", filesystem=storage.arrow()),  # noqa: B023
            lambda: DeltaTable(storage.uri(name), storage_options=storage.delta_options),  # noqa: B023
        ):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                read()
            assert is_store_error(caught.value) is is_stores, caught.value
            assert (cause_of(caught.value) is not None) is is_stores
            assert report_unexpected(caught.value) == (ExitCode.UNREACHABLE if is_stores else ExitCode.BUG)
            said = capsys.readouterr().err
            assert (said.startswith("protolake: "), len(said.splitlines())) == (is_stores, 1)


def test_a_file_that_is_removed_while_it_is_read_is_no_fault_of_the_store(store: Moto | ObjectStore) -> None:
    storage = open_storage(address_in(store))
    storage.replace("a", bytes(1 << 20))
    with storage.open_input("a") as file:
        storage.delete("a")
        with pytest.raises(OSError) as caught:  # noqa: PT011
            file.read()
    assert not is_store_error(caught.value)


def test_a_quarantine_that_cannot_be_read_now_is_not_damaged(moto: Moto, tmp_path: Path) -> None:
    with StoreProxy(moto.url) as proxy:
        lake = lake_at(address_in(moto, proxy.url), tmp_path)
        play(lake)
        assert sum(count_open_causes(lake.opened).values()) > 0
        proxy.spoil("reset", "GET|HEAD", r"quarantine_events/.*parquet", times=1 << 30)
        with pytest.raises(OSError, match="Generic S3 error") as caught:
            count_open_causes(lake.opened)
        assert is_store_error(caught.value)
        with pytest.raises(OSError, match="AWS Error"):
            lake.audit()
        proxy.forget()
        [key] = [key for key in lake.lake.storage.list("quarantine_events") if key.endswith(".parquet")]
        lake.lake.storage.replace(key, b"PAR1 and no more")
        with pytest.raises(ContractError, match="restore its files"):
            count_open_causes(lake.opened)


def test_a_backtest_that_cannot_read_a_file_now_calls_none_damaged(gone: StorageAddress) -> None:
    with pytest.raises(OSError, match="AWS Error") as caught:
        list(scan(open_storage(gone), ["t/1.parquet"], TABLE.schema, ["cause"]))
    assert not isinstance(caught.value, ContractError)


def test_a_worker_that_does_not_reach_the_store_is_not_called_wrong(gone: StorageAddress) -> None:
    with pytest.raises(StoreError):
        _try(open_storage(gone), "trial", Lake.id, "any")


def test_a_state_file_that_cannot_be_read_now_is_not_missing(moto: Moto, gone: StorageAddress, tmp_path: Path) -> None:
    lake = lake_at(address_in(moto), tmp_path)
    request, manifests = Request("replay", {}, "test"), lake.opened.units.manifests
    save_progress(lake.lake, manifests, request, {"records": 7})
    assert load_progress(lake.lake, manifests, request) == {"records": 7}
    with pytest.raises(UnreachableError):
        load_progress(Lake(replace(lake.lake.address, endpoint=gone.endpoint)), manifests, request)


def test_two_processes_that_both_find_no_lease_do_not_both_take_it(
    store: Moto | ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = on_two_machines(store, tmp_path, lease_s=3)
    found_none = slow.lease._await_end  # type: ignore[attr-defined]

    def await_end(deadline: float) -> object:
        found = found_none(deadline)
        fast.lease.acquire()
        return found

    monkeypatch.setattr(slow.lease, "_await_end", await_end)
    with pytest.raises(UnreachableError, match="has just acquired it: stop that process first"):
        slow.lease.acquire()
    fast.lease.check()
    assert fast.lease.epoch == 1
    fast.lease.release()


def test_what_an_old_process_misses_after_a_takeover_is_no_loss(
    store: Moto | ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new process removes manifests and files; the old one must not be held, or it would never start again."""
    old, new = on_two_machines(store, tmp_path, lease_s=0.5)
    missing = ContractError("manifest 7 is missing")
    assert cause_of_end(missing, old.lease) is missing  # nobody has taken the lease yet
    old.lease.acquire()
    assert cause_of_end(missing, old.lease) is missing
    monkeypatch.setattr(old.lease, "_renew_once", lambda ended: None)  # as of a paused process
    new.lease.acquire()
    assert isinstance(cause_of_end(missing, old.lease), LeaseLost)
    wrong = ConfigurationError("a setting")
    assert cause_of_end(wrong, old.lease) is wrong
    assert cause_of_end(missing, new.lease) is missing
    assert cause_of_end(missing, Lake(StorageAddress(str(tmp_path))).lease) is missing
    new.lease.release()
