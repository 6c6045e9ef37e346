"""The page of the published figures: the latest of each measurement and command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.benches import plots
from scripts.benches.options import ENTRIES
from scripts.benches.result import number
from scripts.local import results

PUBLISHED = Path(__file__).with_name("results.jsonl")
PAGE = Path(__file__).with_name("RESULTS.md")
HEAD = """\
# What was measured

Written by `./scripts/bench NAME --publish`. The command in a line repeats it; the load is the average of the last 1, 5
and 15 minutes at its end, and includes the measurement. A value is the median of all rounds if least and
greatest are beside it; lines from before 2026-11-24 have no spread, and their topics repeat 20,000 records.

| measurement | figure | value | least | greatest | target | met | command | machine | load | date |
|---|---|---|---|---|---|---|---|---|---|---|"""
Entry = Mapping[str, Any]


def publish(entry: Entry) -> None:
    """Add the result to the repository's results, and write page and plots again."""
    with results.alone(PUBLISHED):
        results.append(PUBLISHED, entry)
        entries = results.read(PUBLISHED)
        PAGE.write_text(page(entries, plots.draw(entries, PAGE.parent)))


def page(entries: Iterable[Entry], pictures: Sequence[str] = ()) -> str:
    """The results as Markdown; the pictures are files beside it."""
    latest = {(entry["bench"], entry["command"]): entry for entry in entries}
    ordered = sorted(latest.values(), key=lambda entry: list(ENTRIES).index(entry["bench"]))
    lines = [HEAD, *(line for entry in ordered for line in _lines(entry))]
    missing = [name for name in ENTRIES if name not in {bench for bench, _ in latest}]
    if missing:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    for picture in pictures:
        lines += ["", f"![{Path(picture).stem}]({picture})"]
    return "\n".join(lines) + "\n"


def _lines(entry: Entry) -> Iterator[str]:
    """One row per figure."""
    load = " ".join(f"{value:.1f}" for value in entry["load"])
    where = [f"`{entry['command']}`", entry["machine"], load, entry["at"][:10]]
    for figure in entry["figures"]:
        met = {True: "yes", False: "no", None: "-"}[figure.get("met")]
        values = (number(figure[key]) if key in figure else "-" for key in ("value", "least", "greatest"))
        cells = [entry["bench"], figure["what"], *values, figure.get("target", "-"), met, *where]
        yield f"| {' | '.join(cells)} |"
