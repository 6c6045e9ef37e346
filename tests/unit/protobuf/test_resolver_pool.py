"""Schemas that are dear to compile, on a machine that has much else to do: each gets a verdict, nobody waits for it."""

import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.protobuf.schemas import resolver
from spark_app.protobuf.schemas.descriptors import CompileTimedOut
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, Registry, Subjects
from spark_app.protobuf.schemas.resolver import ResolverPool, SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas
from tests.support.answers import Answers, serve
from tests.support.bombs import BOMBS
from tests.support.protos import PROTO3

SETTINGS = Schemas(max_compile_cpu_s=1)


@pytest.fixture
def answers() -> Iterator[Answers]:
    with serve() as answers:
        for bomb in (4, 5):
            answers.schema(bomb, BOMBS["reserved numbers"]().texts[ROOT])
        answers.schema(6, PROTO3 + "message M { string x = 1; }")
        yield answers


@contextmanager
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock runs out before protoc has had any CPU."""
    with monkeypatch.context() as patch:
        patch.setattr(SchemaLimits, "compile_clock_s", property(lambda caps: 0.01 * caps.clocks))
        yield


def registry(answers: Answers) -> Registry:
    return Registry(RegistrySettings(url=answers.url, timeout_s=60), limits_of(SETTINGS))


def run_out(pool: ResolverPool, key: int) -> None:
    wait([pool.look_up(key)])
    with pytest.raises(CompileTimedOut):
        pool.pop_result(key)


def test_a_bomb_is_refused_when_it_has_had_its_cpu_however_busy_the_machine_was(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ResolverPool(registry(answers), limits_of(SETTINGS))
    pauses = [pool.pause(5)]
    with busy_machine(monkeypatch):
        for _ in range(3):
            run_out(pool, 5)
            pauses.append(pool.pause(5))
    assert pauses == [0, *(resolver.PAUSE * 0.01 * clocks for clocks in (3, 6, 12))]
    wait([pool.look_up(5)])
    with pytest.raises(SchemaInvalid, match="of CPU"):
        pool.pop_result(5)
    assert pool.pause(5) == 0


def test_two_bombs_keep_others_waiting_once(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ResolverPool(registry(answers), limits_of(SETTINGS))
    with busy_machine(monkeypatch):
        for bomb in (4, 5):
            run_out(pool, bomb)
    again = [pool.look_up(bomb) for bomb in (4, 5)]  # for a second of CPU each
    wait([pool.look_up(6)])
    assert pool.pop_result(6).resolved.descriptor_set
    assert not all(answer.done() for answer in again)
    assert not again[1].running()
    wait(again)


def test_records_that_wait_for_a_bomb_do_not_request_it_all_the_time(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "PAUSE", 1000)
    schemas = SchemaResolver(Ledger(Lake(tmp_path)), registry(answers), SETTINGS, Subjects(()))
    with busy_machine(monkeypatch):
        schemas.resolve(5)
        for _ in range(3):
            assert not schemas.retry_waiting(None)
            time.sleep(1.1)
    assert answers.asked.count("/schemas/ids/5") == 2
