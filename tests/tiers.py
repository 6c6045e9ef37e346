"""The nightly tests: their shards, which of them the changes since the last green run need, and the record of that run.

A test is nightly by its marker `nightly`, a test of the tools by its folder; a property (`hypothesis`) is tried with
more examples at night. A shard consists of parts, which are test files or scenarios of the campaign.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.chaos.scenarios import ENTRIES

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "nightly.json"
TOOLS = ("tests/unit/benches", "tests/unit/chaos", "tests/unit/local")
CRASHES = (
    *("failpoints", "failpoints_of_recovery", "rules", "merges", "kills", "expectations", "power", "power_of_commits"),
    *("checkpoint", "damage", "relaunch", "growth"),
)
BUCKETS = ("failpoints", "takeovers")  # some steps are those of a lake in a bucket
UNTIMED_S = 60.0  # of a test file that was never run; a scenario takes four times as long


@dataclass(frozen=True)
class Shard:
    """Tests that run together, in an hour at most.

    Attributes:
        marks: the marker expression of pytest; "" = scenarios of the campaign.
        folders: of the test files.
        scenarios: of the campaign.
        storage: where their lakes are.
    """

    marks: str = ""
    folders: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    storage: str = "local"

    @functools.cached_property
    def parts(self) -> tuple[str, ...]:
        files = (path for folder in self.folders for path in sorted((ROOT / folder).rglob("test_*.py")))
        return self.scenarios or tuple(path.relative_to(ROOT).as_posix() for path in files)


SHARDS = {
    "tools": Shard("tools", TOOLS),
    "unit": Shard("(nightly or hypothesis) and not stack and not tools", ("tests/unit", "tests/stores")),
    "spark": Shard("spark and (nightly or hypothesis)", ("tests/spark",)),
    "stack": Shard("stack and nightly and not bench", ("tests/stack", "tests/stores")),
    "browser": Shard("browser and nightly", ("tests/browser",)),
    "crashes": Shard(scenarios=CRASHES),
    "buckets": Shard(scenarios=BUCKETS, storage="s3"),
    "faults": Shard(scenarios=tuple(name for name in ENTRIES if name not in CRASHES + BUCKETS)),
    "e2e": Shard("e2e", ("tests/e2e",)),
}
# What a changed file needs, by the first pattern that fits: whole shards, or the parts of a shard that fit a pattern.
# Files of tests need themselves, or the test files that import them.
NEEDS = {
    "docs/examples/*": "spark:*pipelines*",
    "*.md": "",
    "docs/*": "",
    ".github/*": "",
    ".ci/*": "",
    "Makefile": "",
    "scripts/test": "",
    "tests/nightly.json": "",
    "docker-compose.yml": "e2e",
    ".env": "e2e",
    ".dockerignore": "e2e",
    "*/Dockerfile": "e2e",
    "spark_app/image/*": "e2e",
    "*.lock": "unit spark stack browser crashes buckets faults e2e",
    "proto/*": "stack",
    "producer/*": "stack",
    "spark_app/audit/*": "unit stack:*audit*",
    "spark_app/page/*": "unit browser stack:*page* stack:*alerts* stack:*prometheus*",
    "spark_app/followers/sinks/*": "unit stack:*sink* stack:*serve* stack:*postgres*",
    "spark_app/followers/*": "unit spark crashes",
    "spark_app/recovery/*": "unit spark stack:*recovery* crashes",
    "spark_app/tables/*": "unit spark crashes:expectations faults:paused_*",
    "spark_app/protobuf/*": "unit spark stack:*schema* stack:*registry*",
    "spark_app/sources/files/*": "unit spark:*file* stack:*local*",
    "spark_app/sources/*": "unit stack faults",
    "spark_app/lake/*": "unit spark stack crashes buckets",
    "spark_app/units/*": "spark stack crashes buckets faults",
    "spark_app/settings/*": "unit stack",
    "spark_app/app/*": "stack faults",
    "spark_app/*": "unit spark stack crashes buckets faults",
    "scripts/benches/*": "tools",
    "scripts/*": "tools stack:*local*",
    "tests/chaos/scenarios/__init__.py": "tools",
    "tests/chaos/*": "tools crashes buckets faults",
}

Parts = dict[str, set[str]]  # by shard
Record = Mapping[str, Mapping[str, Any]]


def record() -> dict[str, dict[str, Any]]:
    """By shard: the commit at which it was last green, and the seconds of its parts."""
    kept: dict[str, dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return kept


def needed(last: Record) -> Parts:
    """The parts that the changes since the last green run of their shard need: all, if nobody knows its commit."""
    found: Parts = {}
    for name, shard in SHARDS.items():
        paths = changes(last.get(name, {}).get("commit", ""))
        parts = set(shard.parts) if paths is None else {part for path in paths for part in parts_for(path, name)}
        if parts:
            found[name] = parts
    return found


def within(parts: Parts, last: Record, minutes: float) -> tuple[Parts, Parts]:
    """The parts that fit into the time, by what they took last, and the others."""
    chosen: Parts = {}
    left: Parts = {}
    rest = minutes * 60
    for name in (shard for shard in SHARDS if shard in parts):
        for part in sorted(parts[name], key=lambda part: (seconds(last, name, part), part)):
            took = seconds(last, name, part)
            (chosen if took <= rest else left).setdefault(name, set()).add(part)
            rest -= took if took <= rest else 0
    return chosen, left


def seconds(last: Record, shard: str, part: str) -> float:
    """What a part took; a file that the last run of its shard has no time of has no nightly test."""
    kept: dict[str, float] = last.get(shard, {}).get("seconds", {})
    return kept.get(part, 0.0) if kept else UNTIMED_S * (4 if part in ENTRIES else 1)


def parts_for(path: str, name: str) -> Iterator[str]:
    """The parts of a shard that a changed file needs."""
    parts = SHARDS[name].parts
    if path in parts:
        yield path
    elif path.startswith("tests/chaos/scenarios/") and not path.endswith("__init__.py"):
        yield from (
            part for part in parts if part in ENTRIES and ENTRIES[part].function.startswith(Path(path).stem + ".")
        )
    elif path.startswith("tests/") and not path.startswith("tests/chaos/") and path.endswith(".py"):
        line = re.compile(rf"^(from|import) .*\b{Path(path).stem}\b", re.MULTILINE)
        yield from (part for part in parts if part not in ENTRIES and line.search((ROOT / part).read_text()))
    else:
        wanted = next((needs for pattern, needs in NEEDS.items() if fnmatch(path, pattern)), "")
        for shard, _, pattern in (need.partition(":") for need in wanted.split()):
            if shard == name:
                yield from (part for part in parts if fnmatch(part, pattern or "*"))


@functools.cache
def changes(since: str) -> tuple[str, ...] | None:
    """The files whose content differs from that at a commit; None if the clone does not have it. A file that was moved,
    or a module of which only imports and comments differ, is no change."""
    if not since or _git("cat-file", "-e", f"{since}^{{commit}}").returncode:
        return None
    fields = iter(_git("diff", "--name-status", "-z", "-M", "-l0", since).stdout.split("\0")[:-1])
    found = [path for path in _git("ls-files", "-z", "--others", "--exclude-standard").stdout.split("\0") if path]
    for status in fields:
        old = next(fields)
        new = next(fields) if status.startswith("R") else old
        if status in ("A", "D", "T") or (status != "R100" and not _is_same(since, old, new)):
            found.append(new)
    return tuple(found)


def _is_same(since: str, old: str, new: str) -> bool:
    """If two versions of a module do the same."""
    if not new.endswith(".py"):
        return False
    return normalized(_git("show", f"{since}:{old}").stdout) == normalized((ROOT / new).read_text())


def normalized(source: str) -> str:
    """The syntax tree of a module without imports, docstrings, comments and the names of modules in strings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_ignored(one)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = re.sub(r"\b(spark_app|scripts|tests)([./]\w+)+", r"\1", node.value)
    return ast.dump(tree)


def _is_ignored(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
