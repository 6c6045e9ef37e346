"""An object store that refuses, or whose answer never comes: what is not known is no fault of the lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from scripts.local.objectstore import ObjectStore
from scripts.local.store_proxy import StoreProxy
from spark_app.app.cli.exits import cause_of_end
from spark_app.lake.delta import maintenance
from spark_app.lake.delta.manifest import read_manifest
from spark_app.lake.delta.problems import Problem
from spark_app.lake.files import object_clients
from spark_app.lake.files.state_files import numbers_of
from spark_app.lake.files.store_errors import denied
from spark_app.lake.lake import Lake
from spark_app.lake.lease import DeleteRounds
from spark_app.model.errors import ContractError, LeaseLost, UnreachableError
from spark_app.recovery import doctor
from tests.stores.test_stores_outages import on_two_machines
from tests.support.lakes import SmallLake
from tests.support.stores import Moto, address_in
from tests.unit.units.test_bucket_lake import COMPACTING, check, lake_at, play

FOR_GOOD = 1 << 30
DELETES = "_protolake/deletes"


@dataclass
class Behind:
    """A lake whose requests go through a proxy."""

    proxy: StoreProxy
    lake: SmallLake

    def refuse(self, verb: str, key: str) -> None:
        self.proxy.spoil("status", verb, key, status=403, code="AccessDenied", times=FOR_GOOD)

    def never_answer(self, verb: str, key: str) -> None:
        self.proxy.spoil("reset", verb, key, times=FOR_GOOD)


@pytest.fixture
def behind(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behind]:
    monkeypatch.setattr(object_clients, "RETRY_S", 0.2)
    with StoreProxy(moto.url) as proxy:
        lake = lake_at(address_in(moto, proxy.url), tmp_path / "one", **COMPACTING)
        yield Behind(proxy, lake)
        proxy.forget()
        lake.lake.lease.release()


def test_a_table_that_may_not_be_looked_at_is_not_made_anew(behind: Behind) -> None:
    play(behind.lake)
    behind.refuse("HEAD|GET|LIST", "silver_rummy_events/_delta_log")
    with pytest.raises(PermissionError, match="refuses access"):
        behind.lake.lake.has_table("silver_rummy_events")
    behind.proxy.forget()
    assert behind.lake.lake.has_table("silver_rummy_events")
    assert not behind.lake.lake.has_table("silver_nobody_events")


def test_doctor_keeps_a_ledger_that_cannot_be_read_now(behind: Behind) -> None:
    play(behind.lake)
    for spoil in (behind.refuse, behind.never_answer):
        spoil("HEAD|GET", r"/schemas/|ledger\.json")
        with pytest.raises(OSError, match="the object store"):
            list(doctor.repair(behind.lake.lake, behind.lake.settings))
        behind.proxy.forget()
    assert list(doctor.repair(behind.lake.lake, behind.lake.settings)) == []
    check(behind.lake)


def test_a_manifest_that_may_not_be_read_now_is_not_damaged(behind: Behind) -> None:
    play(behind.lake)
    [key] = [key for key in behind.lake.lake.storage.list(Lake.manifests) if key.endswith("1.json")]
    behind.refuse("GET", key)
    with pytest.raises(PermissionError, match="refuses access"):
        read_manifest(behind.lake.lake.storage, key)
    behind.proxy.forget()
    assert read_manifest(behind.lake.lake.storage, key).sequence == 1
    behind.lake.lake.storage.delete(key)
    with pytest.raises(ContractError, match="cannot be read"):
        read_manifest(behind.lake.lake.storage, key)


def test_a_loss_that_is_met_while_the_store_is_gone_is_not_proven(behind: Behind) -> None:
    missing = ContractError("manifest 7 is missing")
    behind.never_answer(".*", "")
    cause = cause_of_end(missing, behind.lake.lake.lease)
    assert isinstance(cause, UnreachableError)
    assert "manifest 7 is missing" in str(cause)


def test_who_comes_after_a_commit_in_doubt_fences_it_first(behind: Behind, tmp_path: Path) -> None:
    play(behind.lake)
    behind.never_answer("PUT", "/manifests/.*2.json")
    with pytest.raises(UnreachableError):
        play(behind.lake)
    behind.proxy.forget()
    behind.lake.lake.lease.release()
    other = Lake(replace(behind.lake.lake.address, local=str(tmp_path / "other")))
    other.prepare()
    other.lease.acquire()
    assert other.lease.took_over
    other.lease.fenced()
    other.lease.release()
    behind.lake.lake.lease.acquire()  # whoever comes after a fence has nothing to fear
    assert not behind.lake.lake.lease.took_over


def test_a_short_lease_waits_for_the_end_of_a_long_one(
    store: Moto | ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other = on_two_machines(store, tmp_path, lease_s=3.0)
    new = Lake(replace(other.address, lease_s=0.2))
    old.lease.acquire()
    monkeypatch.setattr(old.lease, "_renew_once", lambda ended: None)  # as of a paused process
    began = time.monotonic()
    new.lease.acquire()
    assert time.monotonic() - began > 2.5
    new.lease.release()


def test_doctor_repairs_nothing_after_a_takeover(
    store: Moto | ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = on_two_machines(store, tmp_path, lease_s=0.5)
    old.lease.acquire()
    old.storage.replace("t/1.parquet", b"1")
    monkeypatch.setattr(old.lease, "_renew_once", lambda ended: None)
    new.lease.acquire()
    with pytest.raises(LeaseLost):
        old.set_aside("t")
    assert new.storage.get("t/1.parquet") == b"1"
    found = [Problem("torn", "mend it", repair=lambda: pytest.fail("it was repaired"))]
    monkeypatch.setattr(doctor, "_examine_lake", lambda lake, settings: found)
    with pytest.raises(LeaseLost):
        next(doctor.repair(old, None))  # type: ignore[arg-type]
    new.lease.release()


def test_files_are_merged_later_if_the_store_is_gone_for_a_moment(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_at(address_in(moto), tmp_path, **COMPACTING)
    maintainer, gone = lake.opened.units.maintainer, [True]
    whole = maintenance.rewrite.live

    def live(table: DeltaTable) -> object:
        if gone[0]:
            raise DeltaError("Generic S3 error: error sending request")
        return whole(table)

    monkeypatch.setattr(maintenance.rewrite, "live", live)
    play(lake, 6)  # a table is due after four of them
    assert maintainer.take_done() == {}
    gone[0] = False
    play(lake, 2)
    assert maintainer.take_done()["compactions"] > 0
    check(lake)


def test_a_store_that_refuses_a_merge_ends_the_app(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def live(table: DeltaTable) -> object:
        raise denied("s3://games/demo/t")

    lake = lake_at(address_in(moto), tmp_path, **COMPACTING)
    monkeypatch.setattr(maintenance.rewrite, "live", live)
    with pytest.raises(PermissionError, match="refuses access"):
        play(lake, 6)


def test_a_round_whose_number_may_be_taken_is_looked_up(behind: Behind) -> None:
    lake = behind.lake.lake
    rounds = DeleteRounds(lake.storage, DELETES, lake.lease)
    rounds.delete(["a"])
    before = numbers_of(lake.storage, DELETES)
    behind.never_answer("PUT", "/deletes/")
    with pytest.raises(UnreachableError):
        rounds.delete(["b"])
    behind.proxy.forget()
    rounds.delete(["c"])
    assert numbers_of(lake.storage, DELETES) == [*before, before[-1] + 1]
