"""A person decides about schemas of a small lake, and what follows from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_app.model.reports import Report
from spark_app.recovery.decisions import Acceptance
from spark_app.recovery.requests import Request
from spark_app.units.driver.deferred import DeferredDecoder
from tests.support.lakes import SmallLake


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Decisions wait for the registry and protoc as long as a busy machine needs; the app goes on after a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_app.recovery.decisions.RETRY_WAIT_S", 60.0)
        yield


def accept(small: SmallLake, schema: int, policy: str) -> dict[str, Any]:
    """A person decides; a crash may come after any step."""
    request = Request("accept", {"schema": str(schema), "policy": policy})
    job = Acceptance(small.opened, request)
    with patience():
        assert job.step() == (Report(), {})
    again = Acceptance(small.opened, request)
    assert again.step() is None
    assert job.step() is None
    return again.conclude()


def drain(small: SmallLake) -> None:
    """Decode the waiting records whose schemas are decided."""
    deferred = DeferredDecoder(None, small.opened, small.units)  # type: ignore[arg-type]
    while deferred.step(None) is not None:
        pass


def waiting(small: SmallLake) -> list[str]:
    """What each waiting record waits for."""
    table = DeltaTable(str(small.lake.path("deferred_events"))).to_pyarrow_table()
    found: list[str] = table["waits_for"].to_pylist()
    return found
