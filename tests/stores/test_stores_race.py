"""`doctor` on a store that fails to keep the conditions of writes which come at the same moment.

moto is such a store: of eight clients it sometimes lets two create one object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.local.objectstore import ObjectStore
from scripts.local.store_proxy import StoreProxy
from spark_app.lake.files.objects import CLIENTS, ROUNDS
from spark_app.lake.lake import Lake
from spark_app.recovery import doctor
from tests.support.stores import Moto, address_in
from tests.unit.units.test_bucket_lake import lake_at, play


@contextlib.contextmanager
def open_lake(store: Moto | ObjectStore, folder: Path) -> Iterator[tuple[Lake, StoreProxy]]:
    with StoreProxy(store.url) as proxy:
        yield Lake(replace(address_in(store, proxy.url), local=str(folder))), proxy


@pytest.mark.stack
def test_a_good_store_has_one_winner_and_nothing_is_left(seaweedfs: ObjectStore, tmp_path: Path) -> None:
    with open_lake(seaweedfs, tmp_path) as (lake, proxy):
        assert doctor.race_store(lake) == []
        assert proxy.counted("race")["PUT"] >= 2 * CLIENTS * ROUNDS
        assert lake.storage.list("_protolake") == []


@pytest.mark.parametrize(("skip", "what"), [(1, "create"), (CLIENTS, "replace")])
def test_two_winners_of_one_race_are_a_problem(moto: Moto, tmp_path: Path, skip: int, what: str) -> None:
    """The store does not see the condition of one request in one race: the start's look, a moment ago, was fine."""
    with open_lake(moto, tmp_path) as (lake, proxy):
        lake.prepare()
        proxy.one_by_one = True  # so that this is the only fault
        proxy.spoil("blind", "PUT", f"race-.*-{ROUNDS - 1}$", skip=skip + 1)
        [problem] = doctor.race_store(lake)
    assert problem.fatal
    assert (
        f"lets two processes write one lake: it confirmed to 2 of {CLIENTS} clients that they alone did {what}"
        in str(problem)
    )


@pytest.mark.stack
def test_answers_that_are_lost_are_no_fault_of_the_store(seaweedfs: ObjectStore, tmp_path: Path) -> None:
    with open_lake(seaweedfs, tmp_path) as (lake, proxy):
        proxy.spoil("lost", "PUT", "race", times=20)
        assert doctor.race_store(lake) == []


def test_keys_that_may_only_read_are_no_fault_of_the_store(moto: Moto, tmp_path: Path) -> None:
    with open_lake(moto, tmp_path) as (lake, proxy):
        proxy.spoil("status", "PUT", "race", times=10_000, status=403, code="AccessDenied")
        [problem] = doctor.race_store(lake)
        assert not problem.fatal
        assert "could not be tried" in problem.what


@pytest.mark.stack
def test_doctor_races_the_store_of_a_lake(seaweedfs: ObjectStore, tmp_path: Path) -> None:
    with StoreProxy(seaweedfs.url) as proxy:
        own = lake_at(address_in(seaweedfs, proxy.url), tmp_path)
        play(own, 2)
        proxy.forget()
        found = doctor.examine(own.lake, own.settings)
        assert [problem for problem in found if problem.fatal] == []
        assert proxy.counted("race")["PUT"] >= 2 * CLIENTS * ROUNDS
