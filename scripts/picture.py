"""Draws a terminal with `./scripts/run` as `docs/terminal.svg`, the picture in the README.

`python -m scripts.picture` starts the real stack on an empty lake in a temporary folder; options such as --kafka-port
are those of `./scripts/run`. After `BEFORE_BUMP_S` it sends version 3 of the schema, as a second `./scripts/run` does.
The picture has the lines of the start and the live table `AFTER_BUMP_S` later; only the paths of the temporary folder
are replaced by those of a clone. Use `./scripts/run` once before, so that everything is downloaded.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from scripts.local.bump import bump, note
from scripts.local.claim import Claim
from scripts.local.options import parse
from scripts.local.stack import Stack
from scripts.local.table import View, renderable

PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
CLONE = Path("/home/me/protolake")
TOKEN = "0sVdJ..."  # of no page
BEFORE_BUMP_S, AFTER_BUMP_S = 25.0, 30.0
WIDTH = 128  # characters of the longest line
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--lake", f"{folder}/lake", "--state", f"{folder}/local", "--page-port", "0"]
        with contextlib.redirect_stderr(io.StringIO()) as output:
            view = _run([*sys.argv[1:], *arguments])
    lines = list(_lines_of_start(output.getvalue()))
    shown = replace(
        view, lake=str(CLONE / "lake"), logs=CLONE / "local" / "logs", page=f"http://127.0.0.1:8085/?token={TOKEN}"
    )
    PICTURE.write_text(draw(lines, shown))


def draw(lines: list[str], view: View) -> str:
    """The picture as SVG: the lines of the start and the live table. It loads no font."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in ("$ ./scripts/run", *lines):
        console.print(Text(line))
    console.print(renderable(view))
    return FONT_FACE.sub("", console.export_svg(title="protolake", unique_id="terminal"))


def _run(arguments: list[str]) -> View:
    """Run the stack with one schema bump; returns its last state."""
    options = parse(arguments)
    claim = Claim(options.state)
    claim.acquire()
    note(options)
    stack = Stack(options, claim)
    try:
        stack.up()
        _watch(stack, BEFORE_BUMP_S)
        os.environ["PRODUCER_SCHEMA_VERSION"] = "3"
        bump(options, os.getpid())
        return _watch(stack, AFTER_BUMP_S)
    finally:
        stack.down()


def _watch(stack: Stack, seconds: float) -> View:
    """Look at the stack as often as the live table does: the time of the first rows is that of a look."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stack.look()
        time.sleep(0.5)
    return stack.look()


def _lines_of_start(output: str) -> Iterator[str]:
    for line in output.splitlines():
        yield line
        if line == "producer started":
            return


if __name__ == "__main__":
    main()
