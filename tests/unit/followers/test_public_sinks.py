"""The protocol for kinds of sinks of other packages, the check for them, and the example that passes it."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from spark_app.followers.sinks import sink as sinks
from spark_app.followers.sinks.process import SinkProcess
from spark_app.model.errors import ConfigurationError
from tests.support import public
from tests.support.event_lakes import take
from tests.support.lakes import SmallLake
from tests.support.projections import EVENTS, GROWN

public.install()
from protolake.sinks import Call, Outcome  # noqa: E402  # type: ignore[import-not-found]
from protolake.sinks.testing import check  # noqa: E402  # type: ignore[import-not-found]

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "sinks"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import sqlite_sink

    yield sqlite_sink.SqliteSink
    del sys.modules["sqlite_sink"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as file:
        return [json.loads(row) for [row] in file.execute("SELECT row FROM rows")]


def test_the_example_is_a_sink(example: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    check(example, {"path": str(path)}, lambda: rows_of(path))


class Broken:
    """Keeps rows in a list, and does one thing wrong."""

    can_replace = False
    kept: list[dict[str, Any]]
    fault = ""

    def open(self, options: Any) -> None:
        self.kept = options["kept"]

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        for call in calls:
            rows = call.objects if self.fault != "loses" else call.objects[1:]
            self.kept += [dict(row, player=row["player"].strip()) if self.fault == "strips" else row for row in rows]
        if self.fault == "says nothing":
            return []
        return [Outcome("x" if self.fault == "other key" else call.key, "accepted") for call in calls]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("loses", "a row whose other columns are NULL does not arrive"),
        ("strips", "a text does not arrive as it was"),
        ("says nothing", "there is one outcome for each call"),
        ("other key", "there is one outcome for each call"),
    ],
)
def test_the_check_finds_what_a_sink_does_wrong(fault: str, said: str) -> None:
    kept: list[dict[str, Any]] = []
    kind = type("Wrong", (Broken,), {"fault": fault})
    with pytest.raises(AssertionError, match=said):
        check(kind, {"kept": kept}, lambda: kept)


def test_a_sink_of_another_package_gets_the_rows(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoint("sqlite", "sqlite_sink:SqliteSink", sinks.GROUP)
    monkeypatch.setattr(sinks, "entry_points", lambda group: [found])
    path = tmp_path / "rows.db"
    own = {"kind": "sqlite", "options": {"path": str(path)}, "begin": "all"}
    lake = SmallLake(tmp_path / "lake", EVENTS, GROWN, sinks={"local": own})
    take(lake, 5)
    process = SinkProcess("local", lake.settings, once=True)
    process.start()
    assert process.join(60)
    assert sorted(row["_offset"] for row in rows_of(path)) == [0, 2, 4, 6, 8]
    with pytest.raises(ConfigurationError, match=r"no package has a sink sqlit .*; did you mean sqlite"):
        sinks.made_by("sqlit")
