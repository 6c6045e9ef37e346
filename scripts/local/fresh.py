"""--fresh: moves the old lake and state aside; nothing is deleted."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.local.errors import USAGE, LocalError


def move_aside(lake: Path, state: Path, is_sure: bool) -> None:
    """Move both to <lake>.<time>/ after a question. The state's `run` folder stays, because it holds the lock of this
    run."""
    old = [*([lake] if lake.exists() else []), *_contents(state)]
    if not old:
        return
    aside = lake.with_name(f"{lake.name}.{time.strftime('%Y%m%dT%H%M%S')}")
    if not is_sure:
        _ask(f"move {lake} and the data in {state} to {aside}? [y/N] ")
    (aside / state.name).mkdir(parents=True)
    for path in old:
        shutil.move(path, aside / (lake.name if path == lake else f"{state.name}/{path.name}"))
    print(f"moved the old lake and state to {aside}", file=sys.stderr)


def _contents(state: Path) -> Iterator[Path]:
    return (path for path in sorted(state.iterdir()) if path.name != "run") if state.is_dir() else iter(())


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise LocalError("--fresh asks before it moves the old lake, which needs a terminal: add --yes", USAGE)
    if input(question).strip().lower() not in ("y", "yes"):
        raise LocalError("nothing moved, nothing started", 0)
