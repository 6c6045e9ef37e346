"""`python -m tests.nightly`: ./scripts/test --nightly and --selected, once .venv exists."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from scripts.local.arguments import Parser
from scripts.local.errors import USAGE, LocalError
from tests import tiers
from tests.chaos import lanes
from tests.chaos.options import Options
from tests.tiers import RECORD, ROOT, SHARDS, Parts, Shard

PASSED = ROOT / "local" / "nightly"  # the tests that passed, by shard and commit
SIZES = {"PROTOLAKE_TEST_EXAMPLES": "200", "PROTOLAKE_TEST_KILLS": "10"}
LANES = 2
NO_TESTS = 5  # pytest's exit code
IN_FAST = "tools"  # runs in the fast tier if it is needed


def main() -> int:
    try:
        return _main()
    except LocalError as fault:
        print(f"nightly: {fault}", file=sys.stderr)
        return fault.code


def _main() -> int:
    parser = Parser(prog="./scripts/test --nightly")
    parser.add_argument("shards", nargs="*", help=f"of {', '.join(SHARDS)}; none = those that are not green")
    parser.add_argument("--list", action="store_true", help="say what is not green, and run nothing")
    parser.add_argument("--needs", metavar="SHARD", help="exit with 0 if it is among what would run")
    parser.add_argument("--selected", type=float, metavar="MINUTES", help="as much as fits of what the changes need")
    parser.add_argument("--workers", default="2")
    given = parser.parse_args()
    if unknown := [name for name in given.shards if name not in SHARDS]:
        parser.error(f"no shard {', '.join(unknown)}; there are {', '.join(SHARDS)}")
    last = tiers.record()
    needed = tiers.needed(last)
    left: Parts = {}
    if given.selected is not None:
        needed.pop(IN_FAST, None)
        needed, left = tiers.within(needed, last, given.selected)
    if given.needs:
        return given.needs not in needed
    if given.list:
        print("\n".join(_lines(needed, last)) or "every shard is green")
        return 0
    if given.selected is not None:
        return selected(needed, left, last, given.workers)
    if not (names := given.shards or list(needed)):
        print("every shard is green")
    return nightly(names, given.workers)


def selected(chosen: Parts, left: Parts, last: tiers.Record, workers: str) -> int:
    """Run the parts that the changes need and that fit into the time, and name those that do not fit."""
    failed = [name for name, parts in chosen.items() if not run(name, parts, workers)]
    for line in _lines(left, last) or ["nothing that the changes need"]:
        print(f"not run: {line}")
    return _end(failed)


def nightly(names: list[str], workers: str) -> int:
    """Run whole shards, each from where its last run at this commit, or at one that differs in nothing of it, ended."""
    if changed := _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RECORD.relative_to(ROOT)}"):
        raise LocalError(f"the record names a commit: commit your changes first\n{changed}", USAGE)
    head, failed = _git("rev-parse", "HEAD"), []
    for name in names:
        began = time.monotonic()
        file = _resume(name, head)
        if not run(name, set(SHARDS[name].parts), workers, file):
            failed.append(name)
            continue
        _enter(name, head, file, 1 if name == "e2e" else LANES if SHARDS[name].scenarios else int(workers))
        print(f"== {name} is green, {(time.monotonic() - began) / 60:.0f} min")
    return _end(failed)


def run(name: str, parts: set[str], workers: str, passed: Path | None = None) -> bool:
    """Run parts of a shard. With a file, those that passed are left out and added to it. False if one failed, or if the
    machine cannot run it."""
    shard = SHARDS[name]
    print(f"== {name}: {len(parts)} of {len(shard.parts)} parts", flush=True)
    if shard.scenarios:
        return _play(shard, parts, passed)
    if name == "e2e" and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        print("no container engine here: the e2e tests are not run")
        return False
    line = [sys.executable, "-m", "pytest", "-q", "--dist", "worksteal", "--durations", "20", "--durations-min", "30"]
    line += ["-m", shard.marks, "-n", "0" if name == "e2e" else workers, *sorted(parts)]
    line += ["-p", "tests.passed"] if passed else []
    sizes = SIZES | {"PROTOLAKE_TESTS_PASSED": str(passed)} | os.environ
    return subprocess.run(line, cwd=ROOT, env=sizes, check=False).returncode in (0, NO_TESTS)


def _play(shard: Shard, parts: set[str], passed: Path | None) -> bool:
    """Scenarios of the campaign."""
    done = {line["test"] for line in _read(passed)} if passed else set()
    rest = tuple(name for name in shard.parts if name in parts - done)
    seed = random.SystemRandom().randrange(1_000_000)

    def note(name: str, seconds: float) -> None:
        if passed:
            with passed.open("a") as file:
                file.write(json.dumps({"test": name, "seconds": round(seconds, 1)}) + "\n")

    return not lanes.play(Options(rest, "nightly", seed, lanes=LANES, storage=shard.storage), note)


def _resume(name: str, head: str) -> Path:
    """The file of the tests that passed and that no change since then needs again."""
    PASSED.mkdir(parents=True, exist_ok=True)
    kept = []
    for file in PASSED.glob(f"{name}.*"):
        paths = tiers.changes(file.suffix[1:])
        again = {part for path in paths or () for part in tiers.parts_for(path, name)}
        lines = [] if paths is None else _read(file)
        kept += [line for line in lines if line["test"].partition("::")[0] not in again]
        file.unlink()
    file = PASSED / f"{name}.{head}"
    file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return file


def _enter(name: str, head: str, passed: Path, lanes: int) -> None:
    """Record that a shard is green at a commit."""
    took: defaultdict[str, float] = defaultdict(float)
    for line in _read(passed):
        took[line["test"].partition("::")[0]] += line["seconds"] / lanes
    last = tiers.record()
    last[name] = {"commit": head, "seconds": {part: round(took[part], 1) for part in sorted(took)}}
    RECORD.write_text(json.dumps({name: last[name] for name in SHARDS if name in last}, indent=1) + "\n")
    passed.unlink()


def _lines(parts: Parts, last: tiers.Record) -> list[str]:
    return [
        f"{name}: {len(chosen)} of {len(SHARDS[name].parts)} parts, "
        f"{sum(tiers.seconds(last, name, part) for part in chosen) / 60:.0f} min"
        for name, chosen in parts.items()
    ]


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _end(failed: list[str]) -> int:
    if failed:
        print(f"nightly: not green: {', '.join(failed)}", file=sys.stderr)
    return 65 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
