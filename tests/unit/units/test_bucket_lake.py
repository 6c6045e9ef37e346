"""Lakes in a bucket: the same rows as on a disk, one writer, and nothing twice when answers are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from scripts.local.store_proxy import Fault, Request, StoreProxy
from spark_app.lake.delta import inventory
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.settings.models import Settings
from spark_app.sources.kafka.topics import Topic
from spark_app.units.driver import loss
from spark_app.units.spark import checkpoint
from tests.support.checkpoints import write_checkpoint
from tests.support.frames import batch_of
from tests.support.lakes import TOPIC, TOPIC_ID, SmallLake
from tests.support.stores import Moto, address_in
from tests.unit.units import test_task as kinds

KINDS = [value for value, _ in kinds.KINDS.values()]
SILVER = sum(place.startswith("silver") for _, place in kinds.KINDS.values())
COMPACTING = {"compact_files": 4, "checkpoint_every": 5, "log_retention_hours": 0.000001}


def lake_at(address: StorageAddress, local: Path, **lake: Any) -> SmallLake:
    store = {"endpoint": address.endpoint, "region": address.region, "credentials_file": address.credentials_file}
    return SmallLake(
        address.root,  # type: ignore[arg-type]
        kinds.V1,
        kinds.V2,
        lake=lake,
        store=store | {"local_path": str(local), "lease_s": 3},
    )


def play(lake: SmallLake, units: int = 1) -> None:
    for _ in range(units):
        lake.take(batch_of(KINDS, first=lake.ends.get(0, 0)))


def check(lake: SmallLake) -> None:
    verdict = lake.audit()
    assert verdict.faults() == {}
    assert sum(rows for name, rows in verdict.rows.items() if name.startswith("silver_")) == SILVER * (
        lake.ends[0] // len(KINDS)
    )


@pytest.fixture
def address(moto: Moto) -> StorageAddress:
    return address_in(moto)


def test_a_lake_is_audited_compacted_and_opened_again(address: StorageAddress, tmp_path: Path) -> None:
    lake = lake_at(address, tmp_path, **COMPACTING)
    play(lake, 13)
    check(lake)
    bronze = lake.opened.units.committer.tables.files("bronze_events")
    assert len(bronze) < 10  # they were merged
    assert lake.lake.storage.list("_protolake/deletes")  # and the old ones removed by rounds
    lake.lake.lease.release()
    lake.lake.lease.acquire()
    assert not lake.lake.lease.took_over
    lake.reopen()
    assert lake.opened.units.redone_units == 0
    play(lake)
    check(lake)


def test_accepting_a_loss_moves_the_checkpoint_of_this_machine_aside(address: StorageAddress, tmp_path: Path) -> None:
    lake = lake_at(address, tmp_path)
    play(lake)
    end = lake.ends[0]
    write_checkpoint(lake.lake.path(lake.lake.checkpoint), {TOPIC: {"0": 0}}, [{TOPIC: {"0": end}}])
    assert checkpoint.is_there(lake.lake)
    now = {TOPIC: Topic(TOPIC_ID, {"0": end + 5}, {"0": end + 9})}
    loss.accept(lake.opened, loss.find_gaps(lake.opened.units.manifests.last_ingest, now), now)
    assert not checkpoint.is_there(lake.lake)
    assert list(lake.lake.path(lake.lake.aside).glob("checkpoint-*/offsets/0"))
    assert loss.count(lake.opened) == {"ranges": 1, "offsets": 5}


@dataclass
class Once(Fault):
    """The answer to the first request of each matching key is lost."""

    seen: set[str] = field(default_factory=set)

    def meets(self, request: Request) -> bool:
        is_first = super().meets(request) and request.key not in self.seen
        self.seen |= {request.key} if is_first else set()
        return is_first


def test_no_lost_answer_of_a_decision_or_a_log_entry_doubles_anything(moto: Moto, tmp_path: Path) -> None:
    with StoreProxy(moto.url) as proxy:
        lost = Once("lost", "PUT", r"/(manifests|deletes|_delta_log)/|lease\.json|ledger\.json", times=1 << 30)
        proxy.faults.append(lost)
        lake = lake_at(address_in(moto, proxy.url), tmp_path, **COMPACTING)
        play(lake, 6)
        assert len([key for key in lost.seen if "/manifests/" in key]) >= 6
        assert len([key for key in lost.seen if "/_delta_log/" in key]) >= 18
        proxy.forget()
        check(lake)


def test_a_steady_unit_asks_for_nothing_but_writes(moto: Moto, tmp_path: Path) -> None:
    with StoreProxy(moto.url) as proxy:
        lake = lake_at(address_in(moto, proxy.url), tmp_path)
        play(lake, 2)
        proxy.forget()
        play(lake)
        found = proxy.counted(r"^(?!.*lease\.json)")  # which is renewed by the clock
        files, entries = proxy.counted("part-")["PUT"], proxy.counted("_delta_log")["PUT"]
        assert (files, entries) == (5, 5)
        assert (found["HEAD"], found["LIST"]) == (0, 0)
        assert found["PUT"] <= files + entries + 2


def test_entries_of_a_unit_are_the_same_bytes_whoever_writes_them(address: StorageAddress, tmp_path: Path) -> None:
    """An old process that wakes up finds its own entry, and has done no harm if it was faster."""
    lake = lake_at(address, tmp_path)
    play(lake, 2)
    keys = [key for table in lake.lake.tables() for key in lake.lake.storage.list(f"{table}/_delta_log")]
    before = {key: lake.lake.storage.get(key) for key in keys}
    lake.lake.storage.delete(*(key for key in keys if key.endswith("1.json") or "silver" in key))
    lake.lake.lease.release()
    time.sleep(0.01)  # another moment
    lake.lake.lease.acquire()
    lake.reopen()
    found = {key: lake.lake.storage.get(key) for key in keys}
    assert {key for key in keys if "columns" not in str(before[key]) and found[key] != before[key]} == set()


def test_a_live_process_of_another_machine_keeps_the_lake(address: StorageAddress, tmp_path: Path) -> None:
    old = lake_at(address, tmp_path / "old")
    other = Lake(replace(address, local=str(tmp_path / "other"), lease_s=3))
    other.prepare()
    with pytest.raises(UnreachableError, match=r"is in use by .*: stop that process first"):
        other.lease.acquire(0.5)
    play(old)
    check(old)


def test_a_store_without_conditions_is_refused(moto: Moto, tmp_path: Path) -> None:
    with StoreProxy(moto.url) as proxy:
        proxy.spoil("blind", "PUT", times=9)
        lake = Lake(replace(address_in(moto, proxy.url), local=str(tmp_path)))
        with pytest.raises(ConfigurationError, match="does not keep If-None-Match and If-Match"):
            lake.prepare()


def test_wrong_keys_and_missing_buckets_are_named(address: StorageAddress, tmp_path: Path) -> None:
    gone = replace(address, root="s3://no-such-bucket/x", local=str(tmp_path))
    with pytest.raises(ConfigurationError, match="has no bucket no-such-bucket: create it"):
        Lake(gone).prepare()


@pytest.mark.parametrize("path", ["s3://", "s3://b/a b", "s3://b//x", "S3://b", "ftp://b/x", "s3://b/%20", "s3://-b/x"])
def test_addresses_that_readers_would_not_understand_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="neither a folder nor s3"):
        Settings(lake={"path": path})  # type: ignore[arg-type]


def test_untested_stores_are_taken_on_request_only() -> None:
    with pytest.raises(ValueError, match="never tested"):
        Settings(lake={"path": "gs://bucket/x"})  # type: ignore[arg-type]
    assert Settings(lake={"path": "gs://bucket/x", "untested": True}).lake_address.scheme == "gs"  # type: ignore[arg-type]


def test_a_takeover_before_the_first_unit_is_no_lost_ledger(address: StorageAddress, tmp_path: Path) -> None:
    first = Lake(replace(address, local=str(tmp_path)))
    first.prepare()
    first.lease.acquire()
    first.identity()
    first.storage.replace(f"{first.schemas}/x.fds", b"compiled, and then it was killed")
    first.lease._own.release()  # type: ignore[attr-defined]  # as a kill does
    lake = lake_at(address, tmp_path)
    assert (lake.lake.lease.took_over, lake.opened.units.manifests.last) == (True, 1)
    assert [
        problem
        for problem in inventory.examine(
            lake.lake, lake.opened.units.manifests, lake.opened.units.committer, lake.settings.layout
        )
        if problem.fatal
    ] == []
    play(lake)
    check(lake)
