"""Which nightly tests a change needs, and that a run goes on where it was stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.local.errors import LocalError
from tests import nightly, tiers
from tests.chaos.scenarios import ENTRIES

SOURCE = '''"""Text."""
import os
from spark_app.lake import lake

NAME = "spark_app.lake.lake"


def add(one: int) -> int:
    """Text."""
    return one + 1  # one more
'''
LOGIC = SOURCE + "\n".join(f"\n\ndef step_{number}() -> int:\n    return {number}" for number in range(30))
Repository = Callable[..., str]


@pytest.fixture
def commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Writes files and removes those whose text is None; returns the id of the commit."""
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "RECORD", tmp_path / "tests" / "nightly.json")
    monkeypatch.setattr(nightly, "RECORD", tmp_path / "tests" / "nightly.json")
    monkeypatch.setattr(nightly, "PASSED", tmp_path / "local")
    git("init", "-q", folder=tmp_path)

    def write(files: dict[str, str | None]) -> str:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        git("add", "--all", folder=tmp_path)
        git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "x", "--allow-empty", folder=tmp_path)
        tiers.changes.cache_clear()
        return git("rev-parse", "HEAD", folder=tmp_path)

    return write


def git(*arguments: str, folder: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_module_that_moves_and_imports_that_follow_are_no_change(commit: Repository) -> None:
    since = commit({"spark_app/store/commit.py": LOGIC, "spark_app/user.py": SOURCE, "docs/plot.png": "x" * 99})
    moved = LOGIC.replace("spark_app.lake", "spark_app.lake.delta").replace("# one more", "")
    user = SOURCE.replace("spark_app.lake", "spark_app.model").replace("import os\n", "").replace("Text", "Words")
    commit({"spark_app/store/commit.py": None, "spark_app/lake/commit.py": moved, "spark_app/user.py": user})
    commit({"docs/plot.png": None, "docs/images/plot.png": "x" * 99})
    assert tiers.changes(since) == ()


def test_another_line_of_a_module_that_moves_is_a_change(commit: Repository) -> None:
    since = commit({"spark_app/store/commit.py": LOGIC})
    commit({"spark_app/store/commit.py": None, "spark_app/lake/commit.py": LOGIC.replace("one + 1", "one + 2")})
    assert tiers.changes(since) == ("spark_app/lake/commit.py",)


def test_new_removed_and_uncommitted_files_are_changes(commit: Repository, tmp_path: Path) -> None:
    since = commit({"spark_app/a.py": SOURCE, "spark_app/b.py": SOURCE + "X = 1", "notes.txt": "a"})
    commit({"spark_app/a.py": None, "spark_app/c.py": "pass", "notes.txt": "b"})
    (tmp_path / "spark_app" / "d.py").write_text("")
    (tmp_path / "spark_app" / "b.py").write_text(SOURCE)
    assert sorted(tiers.changes(since) or ()) == ["notes.txt", *(f"spark_app/{name}.py" for name in "abcd")]
    assert tiers.changes("0" * 40) is None


@pytest.mark.parametrize(
    ("path", "needs"),
    [
        ("docs/decoding.md", {}),
        ("README.md", {}),
        ("docs/examples/spark-pipelines/README.md", {"spark": ["tests/spark/test_spark_pipelines.py"]}),
        ("spark_app/README.md", {}),
        ("scripts/test", {}),
        ("docker-compose.yml", {"e2e"}),
        ("spark_app/Dockerfile", {"e2e"}),
        ("spark_app/image/run", {"e2e"}),
        (".env", {"e2e"}),
        ("requirements.lock", {*tiers.SHARDS} - {"tools"}),
        ("spark_app/units/driver/unit.py", {"spark", "stack", "crashes", "buckets", "faults"}),
        ("scripts/benches/drain.py", {"tools"}),
        ("tests/chaos/stage.py", {"tools", "crashes", "buckets", "faults"}),
        ("tests/chaos/scenarios/kills.py", {"crashes": ["kills"]}),
        ("tests/spark/test_spark_gold.py", {"spark": ["tests/spark/test_spark_gold.py"]}),
        ("spark_app/followers/sinks/plan.py", {"unit", "stack"}),
        ("tests/e2e/compose.py", {"e2e": [f"tests/e2e/test_compose{name}.py" for name in ("", "_bi", "_cluster")]}),
        ("spark_app/audit/frames.py", {"unit", "stack"}),
    ],
)
def test_a_change_needs_the_shards_of_its_folder(path: str, needs: dict[str, list[str]] | set[str]) -> None:
    found = {name: [*tiers.parts_for(path, name)] for name in tiers.SHARDS}
    found = {name: parts for name, parts in found.items() if parts}
    assert (found.keys() if isinstance(needs, set) else found) == needs


def test_every_package_and_scenario_is_known() -> None:
    packages = {f"spark_app/{path.name}/*" for path in (tiers.ROOT / "spark_app").iterdir() if path.is_dir()}
    assert {pattern for pattern in tiers.NEEDS if pattern.startswith("spark_app/")} - packages == {
        "spark_app/*",
        "spark_app/followers/sinks/*",
        "spark_app/sources/files/*",
    }
    assert {name for shard in tiers.SHARDS.values() for name in shard.scenarios} == ENTRIES.keys()
    for shard in tiers.SHARDS.values():
        assert {ENTRIES[name].storage for name in shard.scenarios} <= {"", shard.storage}
    needs = {need.partition(":")[0] for line in tiers.NEEDS.values() for need in line.split()}
    assert needs <= tiers.SHARDS.keys()


def test_a_shard_without_a_known_commit_is_needed_whole(commit: Repository) -> None:
    last = {name: {"commit": commit({})} for name in tiers.SHARDS if name != "spark"}
    assert tiers.needed(last) == {"spark": {*tiers.SHARDS["spark"].parts}}
    commit({"spark_app/model/address.py": "X = 1"})
    assert "stack" in tiers.needed(last)


def test_what_does_not_fit_into_the_time_is_left() -> None:
    last = {"stack": {"seconds": {"a": 100.0, "b": 50.0}}, "e2e": {"seconds": {"c": 300.0, "d": 1.0}}}
    chosen, left = tiers.within({"e2e": {"c", "d"}, "stack": {"a", "b", "never nightly"}}, last, 3)
    assert chosen == {"stack": {"a", "b", "never nightly"}, "e2e": {"d"}}
    assert left == {"e2e": {"c"}}
    assert tiers.within({"spark": {"unknown"}}, {}, 0.5) == ({}, {"spark": {"unknown"}})


TESTS = """
import pytest

def test_passes(): pass

def test_fails_at_first():
    from pathlib import Path
    assert Path("mended").exists()

@pytest.mark.skip
def test_is_skipped(): pass
"""


def test_a_run_goes_on_with_the_tests_that_have_not_passed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    passed = tmp_path / "passed"
    passed.touch()
    line = [sys.executable, "-m", "pytest", "-q", "-p", "tests.passed", "-c", os.devnull, "--rootdir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(tiers.ROOT), "PROTOLAKE_TESTS_PASSED": str(passed)}

    def run() -> tuple[int, list[str]]:
        done = subprocess.run(
            [*line, "-n", "2", "test_it.py"], cwd=tmp_path, env=environment, timeout=300, capture_output=True
        )
        return done.returncode, sorted(json.loads(line)["test"].partition("::")[2] for line in passed.open())

    assert run() == (1, ["test_is_skipped", "test_passes"])
    (tmp_path / "mended").touch()
    assert run() == (0, ["test_fails_at_first", "test_is_skipped", "test_passes"])
    assert run()[0] == 5


def test_a_whole_shard_is_entered_with_its_commit_and_times(
    commit: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = commit({"spark_app/app/start.py": SOURCE, "tests/spark/test_spark_x.py": ""})
    ran: list[str] = []

    def run(name: str, parts: set[str], workers: str, passed: Path) -> bool:
        done = [json.loads(line)["test"] for line in passed.open()]
        ran.extend(test for test in ("tests/spark/test_spark_x.py::a", "tests/y.py::b") if test not in done)
        with passed.open("a") as file:
            file.writelines(json.dumps({"test": test, "seconds": 3.0}) + "\n" for test in ran)
        return len(ran) < 2  # the first run is not green

    monkeypatch.setattr(nightly, "run", run)
    monkeypatch.setattr(tiers, "SHARDS", {"spark": tiers.Shard("spark", ("tests/spark",))})
    monkeypatch.setattr(nightly, "SHARDS", tiers.SHARDS)
    assert nightly.nightly(["spark"], "2") == 65
    assert tiers.record() == {}
    ran.clear()
    head = commit({"tests/spark/test_spark_x.py": "X = 1"})
    assert nightly.nightly(["spark"], "2") == 0
    assert ran == ["tests/spark/test_spark_x.py::a"]
    assert tiers.record() == {
        "spark": {"commit": head, "seconds": {"tests/spark/test_spark_x.py": 1.5, "tests/y.py": 1.5}}
    }


def test_uncommitted_changes_are_not_recorded(commit: Repository, tmp_path: Path) -> None:
    commit({"spark_app/a.py": ""})
    (tmp_path / "spark_app" / "a.py").write_text("X = 1")
    with pytest.raises(LocalError, match=r"commit your changes first\n.*a\.py"):
        nightly.nightly(["spark"], "2")
