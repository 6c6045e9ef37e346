"""A thousand hostile routing values through a task, admitted and run again: no folder but the allowed ones."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.tables.route import NAME
from spark_app.units.worker import task
from tests.chaos.units import open_lake
from tests.support.frames import batch_of, frame
from tests.support.protos import PROTO3, catalog_of, compile_text, message_class
from tests.support.units import table_desk
from tests.unit.units.test_task import plan_for, read_back

SCHEMA = compile_text(PROTO3 + "message Event { string game_name = 1; }")
NASTY = [
    ".",
    "..",
    "...",
    "/",
    "\\",
    "\0",
    "\n",
    "\r",
    "\t",
    " ",
    "~",
    "-",
    "@",
    ":",
    "*",
    "?",
    "|",
    "<",
    ">",
    "`",
    "'",
]
NASTY += ['"', ";", "%", "%2f", "%2e%2e%2f", "$HOME", "${x}", "{name}", "#", "=", "&", "\u202e", "\ufeff", "\u200b"]
NASTY += [
    "\ud7ff",
    "é",
    "e\u0301",
    "İ",
    "ß",
    "ﬁ",
    "\uff0f",
    "\u2024",
    "\u2215",
    "\u212a",
    "\u017f",
    "con",
    "nul",
    "_delta_log",
]
NASTY += [
    "_protolake",
    "bronze_events",
    "part-0.parquet",
    "x" * 65,
    "x" * 255,
    "x" * 5000,
    "🎲",
    "''--",
    "`; DROP TABLE x",
]


def hostile(count: int) -> list[str]:
    """Values made of what file systems, shells, SQL and Unicode make trouble with."""
    dice = random.Random(7)
    values = set(NASTY)
    while len(values) < count:
        values.add("".join(dice.choices([*NASTY, "rummy", "uno", "a", "B", "0", "_"], k=dice.randrange(1, 6))))
    return sorted(values)


@pytest.mark.parametrize("cap", [1000, 5])
def test_a_thousand_hostile_games_stay_in_the_lake(tmp_path: Path, cap: int) -> None:
    values = hostile(1000)
    message = message_class(SCHEMA, "Event")
    records = [batch_of([frame(1, message(game_name=value).SerializeToString()) for value in values])]
    lake = open_lake(tmp_path / "lake")
    desk = table_desk(lake, cap=cap)
    plan = plan_for(tmp_path / "lake", routing=desk.routing())
    desk.admit(task.run(iter(records), plan, catalog_of(SCHEMA), "0").new_values)
    final = replace(plan, defer_new=True, routing=desk.routing())
    report = task.run(iter(records), final, catalog_of(SCHEMA), "0")
    assert report.balance() == (1000, 1000)
    names = set(report.silver)
    assert len(names) <= cap
    assert all(NAME.fullmatch(name) for name in names)
    tables = {f"silver_{name}_events" for name in names} | {"bronze_events", "quarantine_events"}
    assert {path.name for path in (tmp_path / "lake").iterdir()} == tables | {"_protolake"}
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    assert set(map(str.casefold, tables)) == tables
    lake = Lake(tmp_path / "lake")
    assert lake.path(lake.table("silver_x_events")).parent == tmp_path / "lake"
    (tmp_path / "lake" / "_protolake").rename(tmp_path / "state")
    found = read_back(tmp_path / "lake", report)
    games = [game for name in names for game in found[f"silver_{name}_events"]["game_name"].to_pylist()]
    assert len(games) == len(set(games)) == sum(report.silver.values())
