"""Each place of the settings that names a field, in many spellings: it means what it says, or somebody is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest
from deltalake import DeltaTable
from google.protobuf import json_format
from pydantic import ValidationError

from spark_app.audit.snapshot import Snapshot
from spark_app.followers.gold.aggregates import source_of
from spark_app.followers.gold.plan import Planner
from spark_app.followers.gold.spec import GoldSpec
from spark_app.model.errors import ConfigurationError
from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.games import Game
from tests.support.lakes import SmallLake
from tests.support.protos import PROTO3, compile_text, message_class
from tests.support.references import section, write

Outcome = Literal["right", "refused", "told", "silent"]
EVENT = compile_text(
    PROTO3 + "message Event { string Game_Name = 1; string Gamer_ID = 2; Spot spot = 3; }"
    " message Spot { Room Room = 1; } message Room { string Building = 1; }"
)
RECORD = {"Game_Name": "uno", "Gamer_ID": "ann", "spot": {"Room": {"Building": "bee"}}}
VALUE = frame(1, json_format.ParseDict(RECORD, message_class(EVENT, "Event")()).SerializeToString())
TOP = ("Gamer_ID", "gamer_id", "GAMER_ID", "gAMER_iD")
NESTED = ("spot.Room.Building", "spot.room.building", "SPOT.ROOM.BUILDING")
NO_FIELD = ("GamerID", "gamer-id", "gamer_id ", "Gamer_ID.x", "spot.Rooms.Building")
Errors = Callable[[], str]


def lake_of(root: Path, **sections: Any) -> SmallLake:
    """A lake after the check of its start."""
    lake = SmallLake(root / "lake", EVENT, **({"event": {"routing": "Game_Name"}} | sections))
    lake.units.check_expectations()
    return lake


def silver(lake: SmallLake, name: str = "uno") -> dict[str, Any] | None:
    path = str(lake.lake.path(f"silver_{name}_events"))
    return pl.read_delta(path).row(0, named=True) if DeltaTable.is_deltatable(path) else None


def routing(root: Path, name: str, said: Errors) -> Outcome:
    lake = lake_of(root, event={"routing": name})
    lake.take(batch_of([VALUE]))
    if silver(lake, "ann") or silver(lake, "bee"):
        return "right"
    [detail] = DeltaTable(str(lake.lake.path("quarantine_events"))).to_pyarrow_table()["detail"].to_pylist()
    return "told" if name in detail else "silent"


def gold(root: Path, name: str, said: Errors, event: dict[str, Any], aggregates: dict[str, Any]) -> Outcome:
    lake = lake_of(root, event={"routing": "Game_Name"} | event, gold={"aggregates": aggregates})
    lake.take(batch_of([VALUE]))
    own, audited, lacking = read_by_gold(lake, name)
    assert own == audited
    if own:
        return "right" if own in (("Gamer_ID",), ("spot", "Room", "Building")) else "silent"
    return "told" if "there is no such field" in lacking else "silent"


def read_by_gold(lake: SmallLake, name: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The paths that a name means to gold and to the audit, () = no field; and what status and log say of it."""
    spec, lacking = GoldSpec.all_of(lake.settings)[0], dict[str, str]()
    found = Planner(lake.opened, spec, None)._fields_of("uno", lacking)  # type: ignore[arg-type]
    said = lacking.get(f"{spec.setting_of(name)} in silver_uno_events", "")
    snapshot = Snapshot.read(lake.settings, 10)
    path = snapshot.path_of(snapshot.tables["silver_uno_events"], name)
    return () if said else source_of(found.field(name)), path, said


def key(root: Path, name: str, said: Errors) -> Outcome:
    return gold(root, name, said, {"key": name, "time": "Game_Name"}, {"n": {"function": "count"}})


def time(root: Path, name: str, said: Errors) -> Outcome:
    return gold(root, name, said, {"key": "Game_Name", "time": name}, {"last": {"function": "max"}})


def aggregate(root: Path, name: str, said: Errors) -> Outcome:
    return gold(root, name, said, {"key": "Game_Name"}, {"last": {"function": "max", "field": name}})


def expectation(root: Path, name: str, said: Errors) -> Outcome:
    rule = {"check": f"{name} NOT IN ('ann', 'bee')", "action": "drop"}
    return "right" if lake_of(root, expectations={"e": rule}).take(batch_of([VALUE])).dropped else "silent"


def projection(root: Path, name: str, said: Errors) -> Outcome:
    lake = lake_of(root, silver={"columns": {"made": f"upper({name})"}})
    lake.take(batch_of([VALUE]))
    return "right" if (silver(lake) or {}).get("made") in ("ANN", "BEE") else "silent"


def drop(root: Path, name: str, said: Errors) -> Outcome:
    lake = lake_of(root, silver={"drop": [name]})
    lake.take(batch_of([VALUE]))
    if "Gamer_ID" not in (silver(lake) or {}):
        return "right"
    return "told" if name in said() else "silent"


def reference(root: Path, name: str, said: Errors) -> Outcome:
    path = write(root, ("ann", "FR", 1), ("bee", "FR", 2))
    lake = lake_of(root, reference=section(path, on=name))
    lake.take(batch_of([VALUE]))
    return "right" if (silver(lake) or {}).get("country") == "FR" else "silent"


PLACES = (routing, key, time, aggregate, expectation, projection, drop, reference)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [*TOP, *NESTED, *NO_FIELD])
def test_a_name_means_its_field_or_is_refused_or_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], place: Callable[[Path, str, Errors], Outcome], name: str
) -> None:
    try:
        outcome = place(tmp_path, name, lambda: capfd.readouterr().err)
    except (ConfigurationError, ValidationError) as refused:
        parts = name.casefold().replace("-", ".").strip().split(".")
        outcome = "refused" if any(part in str(refused).casefold() for part in parts) else "silent"
    assert outcome == "right" if name in TOP else outcome != "silent"
    if name in NESTED and place in (time, aggregate, expectation, projection):
        assert outcome == "right"


ROOMS = (
    "message Event {{ string game_name = 1; string gamer_id = 2; Spot {} = 3; }}"
    " message Spot {{ Room {} = 1; }} message Room {{ int64 {} = 1; }}"
)
VERSIONS = [("spot", "room", "seats"), ("place", "room", "chairs"), ("place", "hall", "chairs")]


def test_gold_and_the_audit_follow_a_renamed_field_inside_a_struct(answers: Answers, tmp_path: Path) -> None:
    texts = (ROOMS.format(*names) for names in VERSIONS)
    game = Game(answers, tmp_path, *texts, rename="alias", event={"key": "gamer_id", "time": "gamer_id"})
    for number, (first, second, third) in enumerate(VERSIONS, 1):
        game.send(number, {first: {second: {third: 4}}})
    names = [f"{a}.{b}.{c}" for a in ("spot", "Place") for b in ("room", "HALL") for c in ("seats", "chairs")]
    for name in (*names, "spot.room.tables", "spot.table.seats"):
        game.lake.reopen(gold={"aggregates": {"seats": {"function": "sum", "field": name}}})
        meant = ("spot", "room", "seats") if name in names else ()
        assert read_by_gold(game.lake, name)[:2] == (meant, meant), name
