"""Which status of the app a stack shows."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from scripts.local import status
from scripts.local.claim import Claim
from scripts.local.options import parse
from scripts.local.program import Exit
from scripts.local.stack import Stack

OWN = ["--brokers", "k:1", "--registry", "http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("state", "ended_s", "shown"),
    [
        ("running", None, "running"),
        ("running", 1.0, "starting"),  # it was killed after its last status
        ("running", -1.0, "running"),  # another process has written since
        ("waiting", 1.0, "starting"),
        ("held", 1.0, "held"),
        ("stopped", 1.0, "stopped"),
    ],
)
def test_a_killed_app_shows_no_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, ended_s: float | None, shown: str
) -> None:
    stack = Stack(parse(["--state", str(tmp_path / "state"), "--lake", str(tmp_path / "lake"), *OWN]), Claim(tmp_path))
    at = stack.started + 10
    written = {"state": state, "updated_at": datetime.fromtimestamp(at, UTC).isoformat(), "rate": 500.0, "bronze": 7}
    monkeypatch.setattr(stack._reports, "latest", lambda: status.parse(written))
    exits = [] if ended_s is None else [Exit(at + ended_s, -9, 5.0, False)]
    monkeypatch.setattr(stack, "_exits", lambda name: exits)
    found = stack.report()
    assert (found.state, found.bronze) == (shown, 7)
    assert found.rate == (0 if shown == "starting" else 500)
