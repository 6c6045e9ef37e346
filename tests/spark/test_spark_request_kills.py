"""A request outlives the JVM at any of its steps: it is killed again and again, and what was asked happens once."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_app.model.errors import ExitCode
from spark_app.recovery import requests
from spark_app.recovery.requests import Request
from tests.spark.parts import Parts, events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
NewParts = Callable[..., Parts]
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PROTOLAKE_TEST_KILLS", "1"))  # of each kind of request
RECORDS = max(2_000, 1_000 * KILLS)  # in steps of 250: between two kills a few are done, and at the last some are left


def execute(parts: Parts, request: Request, what: str = "0", delay: float = 0.0) -> tuple[int, str, str]:
    """The request in a process of its own, whose JVM is killed in a step; exit code and what it said."""
    own = {"PROTOLAKE_LAKE__PATH": str(parts.lake.root), "PROTOLAKE_REGISTRY__URL": parts.settings.registry.url}
    command = [sys.executable, "-m", "tests.support.dying", str(parts.lake.root), request.id, what, str(delay)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout, done.stderr


def kill_often(parts: Parts, request: Request, dice: random.Random) -> dict[str, Any]:
    """The answer, after deaths at the first step, at random moments of later ones, and at the last."""
    requests.submit(parts.lake, request)
    moments = [("1", 0.0), *((str(dice.randint(1, 2)), dice.uniform(0, 0.5)) for _ in range(KILLS - 2))]
    moments += [("conclude", 0.0)] if request.kind == "rebuild" else [("1", 0.1)]
    for what, delay in moments:
        code, out, said = execute(parts, request, what, delay)
        assert (code, out) == (ExitCode.BUG, ""), said
        assert f"the JVM ended during {request.kind} {request.id}; the request stays" in said
        assert [asked.id for asked in requests.pending(parts.lake)] == [request.id]
    code, out, said = execute(parts, request)
    assert code == ExitCode.DONE, said
    assert requests.pending(parts.lake) == []
    answer: dict[str, Any] = json.loads(out)
    assert "error" not in answer
    return answer


def offsets_of(parts: Parts, table: str, column: str = "_offset") -> list[int]:
    return sorted(parts.read(table)[column].to_list())


@pytest.mark.nightly
def test_a_replay_outlives_the_jvm(new_parts: NewParts, tmp_path: Path) -> None:
    parts = new_parts(tables={"allowlist": ["rummy"]})
    parts.learn(1)
    parts.take(events(1, [("rummy" if n % 4 == 0 else "uno", "a") for n in range(RECORDS)]))
    uno = [n for n in range(RECORDS) if n % 4]
    answer = kill_often(new_parts(), Request("replay", {}), random.Random(7))
    assert answer["candidates"] == {"route_refused": len(uno)}
    assert answer["resolved"] == {"silver_uno_events": len(uno)}
    again = new_parts()
    assert offsets_of(again, "silver_uno_events") == uno
    assert offsets_of(again, "resolved_events", "offset") == uno


def test_a_rebuild_outlives_the_jvm(new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, [("rummy" if n % 4 == 0 else "uno", f"player {n % 9}") for n in range(RECORDS)]))
    parts.gold.run()
    parts.gold.close()
    parts.committer.close()
    gold = sorted(parts.read("gold_uno_player_agg").rows())
    shutil.rmtree(parts.lake.path("silver_uno_events"))
    answer = kill_often(new_parts(), Request("rebuild", {"names": ["uno"]}), random.Random(8))
    uno = [n for n in range(RECORDS) if n % 4]
    assert answer["tables"]["silver_uno_events"]["added"] == len(uno)
    again = new_parts()
    assert offsets_of(again, "silver_uno_events") == uno
    assert sorted(again.read("gold_uno_player_agg").rows()) == gold
