"""The rivals of the benchmark do what they are compared for: each ends with every record."""

import json
from pathlib import Path

import pytest

from scripts.benches import drain, result
from scripts.benches.options import RIVALS, parse

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


def test_every_rival_takes_the_whole_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "FILE", tmp_path / "bench.jsonl")
    options = ["--records", "3000", "--rounds", "1", "--message", "rich", "--versions", "2", "--bad", "0.02"]
    drain.run(parse(["drain", *options, "--against", *RIVALS]))
    found = json.loads((tmp_path / "bench.jsonl").read_text())
    assert [run["side"] for run in found["runs"]] == ["app", *RIVALS]
    assert all(run["seconds"] > 0 for run in found["runs"])
