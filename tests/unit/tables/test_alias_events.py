"""The routing field, and the key and the fields of gold, by the column or by the name of its field."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from spark_app.audit.check_quarantine import OTHER_NAME
from spark_app.followers.gold.aggregates import Aggregate, Grouping, source_of
from spark_app.followers.gold.plan import Planner
from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake.files.state_files import read_durable, write_quickly
from spark_app.model.errors import ConfigurationError
from spark_app.settings.gold import Gold
from spark_app.tables.fixed_settings import check_fixed_settings
from tests.support.answers import Answers
from tests.support.games import Game

TEXTS = [f"message Event {{ string {name} = 1; string gamer_id = 2; }}" for name in ("game_name", "game")]


def routed(game: Game) -> None:
    game.send(1, {"game_name": "uno"})
    game.send(2, {"game": "uno"})


def kept(game: Game) -> Any:
    return read_durable(game.lake.lake.storage, game.lake.lake.fixed_settings)["event.routing"]


@pytest.mark.parametrize("versions", [(1, 2), (2, 1), (2,)])
def test_a_new_lake_may_call_its_routing_field_by_the_new_name(
    answers: Answers, tmp_path: Path, versions: tuple[int, ...]
) -> None:
    game = Game(answers, tmp_path, *TEXTS, event={"routing": "game"}, rename="alias")
    game.lake.opened.resolver.resolve_new([12])
    for version in versions:
        game.send(version, {("game_name", "game")[version - 1]: "uno"})
    assert game.rows("game_name") == [("uno",)] * len(versions)
    assert game.quarantined() == []
    game.check()


def test_a_lake_may_call_its_routing_field_by_the_new_name_later(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, *TEXTS, rename="alias")
    routed(game)
    game.lake.reopen(event={"routing": "game"})
    assert game.lake.opened.settings.event.routing == kept(game) == "game_name"
    routed(game)
    assert game.rows("game_name") == [("uno",)] * 4
    assert game.quarantined() == []
    game.check()
    with pytest.raises(ConfigurationError, match=r"event\.routing is 'other', but the lake"):
        game.lake.reopen(event={"routing": "other"})


def test_a_lake_that_began_with_the_new_name_takes_the_old_one(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, *TEXTS, event={"routing": "game"}, rename="alias")
    game.lake.opened.resolver.resolve_new([12])
    routed(game)
    game.lake.reopen(event={"routing": "game_name"})
    routed(game)
    assert (kept(game), game.rows("game_name")) == ("game", [("uno",)] * 4)
    assert check_fixed_settings(game.lake.lake, game.lake.settings).event.routing == "game"
    game.check()


def test_a_renamed_routing_field_keeps_its_column_by_default(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, *TEXTS)
    game.send(1, {"game_name": "uno"})
    game.send(2, {"game": "uno"})
    assert game.rows("game_name") == [("uno",)] * 2
    game.check()
    game.lake.opened.resolver.comparer.step(threading.Lock())
    assert game.lake.opened.resolver.ledger.warnings()["count"] == 1


def test_another_routing_field_is_refused(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, *TEXTS, rename="warn")
    game.send(1, {"game_name": "uno"})
    game.send(2, {"game": "uno"})
    with pytest.raises(ConfigurationError, match=r"event\.routing is 'game', but the lake"):
        game.lake.reopen(event={"routing": "game"})
    assert game.quarantined() == ["route_missing"]


def test_records_from_before_the_new_name_stay_in_quarantine(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, *TEXTS, event={"routing": "game"}, rename="alias")
    game.send(1, {"game_name": "uno"})
    game.check()
    routed(game)
    routed(game)
    assert game.quarantined() == ["route_missing"] * 2
    assert game.rows("game_name") == [("uno",)] * 3
    verdict = game.lake.audit()
    assert (verdict.faults(), verdict.notes[OTHER_NAME]) == ({}, 2)


def test_a_later_field_of_the_name_routes_its_own_version_alone(answers: Answers, tmp_path: Path) -> None:
    later = "message Event { string title = 1; string gamer_id = 2; string game = 4; }"
    game = Game(
        answers,
        tmp_path,
        *TEXTS,
        later.replace(" string game = 4;", ""),
        later,
        event={"routing": "game"},
        rename="alias",
    )
    game.send(2, {"game": "uno"})
    game.send(4, {"title": "x", "game": "uno"})
    routed(game)
    assert game.rows("game_name", "game") == [("uno", None), ("x", "uno"), ("uno", None), ("uno", None)]
    game.check()


def test_the_audit_finds_the_routing_column_by_itself(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = Game(answers, tmp_path, *TEXTS, event={"routing": "game"}, rename="alias")
    with monkeypatch.context() as patched:
        patched.setattr("spark_app.units.worker.row_router.column_of", lambda name, columns, aliases: "gamer_id")
        game.send(2, {"game": "uno", "gamer_id": "hearts"})
    assert game.lake.opened.admission.admitted == {"hearts": "hearts"}
    assert game.lake.audit().faults() != {}


def test_a_routing_field_of_the_new_name_keeps_its_column(answers: Answers, tmp_path: Path) -> None:
    later = "message Event { bytes game = 1; string gamer_id = 2; }"
    game = Game(answers, tmp_path, *TEXTS, later, event={"routing": "game"}, rename="alias")
    game.lake.opened.resolver.resolve_new([13])
    assert game.lake.opened.resolver.ledger.catalog().columns["Event"].names == ["game_name", "gamer_id"]
    routed(game)
    game.send(3, {"game": "dW5v"})
    assert game.quarantined() == ["route_missing"]


GOLD = {"points": {"function": "max", "field": "points"}, "score": {"function": "max", "field": "score"}}
SCORES = [
    f"message Event {{ string game_name = 1; string {key} = 2; int64 {value} = 3; }}"
    for key, value in (("gamer_id", "score"), ("gamer", "points"))
]


def planned(game: Game) -> pa.Schema:
    spec = GoldSpec.all_of(game.lake.settings)[0]
    planner = Planner(game.lake.opened, spec, None)  # type: ignore[arg-type]
    return planner._fields()["uno"]


def test_gold_names_its_key_and_fields_by_either_name(answers: Answers, tmp_path: Path) -> None:
    settings = {"event": {"key": "gamer", "time": "points"}, "gold": {"aggregates": GOLD}}
    game = Game(answers, tmp_path, *SCORES, rename="alias", **settings)
    game.send(
        1, {"game_name": "uno", "gamer_id": "ann", "score": 1}, {"game_name": "uno", "gamer_id": "bob", "score": 2}
    )
    game.send(2, {"game_name": "uno", "gamer": "ann", "points": 3})
    fields = planned(game)
    assert [(field.name, source_of(field), str(field.type)) for field in fields] == [
        ("gamer", ("gamer_id",), "string"),
        ("points", ("score",), "int64"),
        ("score", ("score",), "int64"),
    ]
    wanted = tuple(Aggregate(name, "max", name) for name in ("points", "score"))
    grouping, files = (
        Grouping(("gamer",), wanted, fields),
        game.lake.opened.units.committer.tables.files("silver_uno_events"),
    )
    found = grouping.finish(grouping.reduce(game.lake.lake.storage, files))
    assert sorted(found.to_pylist(), key=str) == [
        {"gamer": "ann", "points": 3, "score": 3},
        {"gamer": "bob", "points": 2, "score": 2},
    ]
    fold(game, found)
    game.check()
    fold(game, found.set_column(1, "points", pa.array([3, 4])))
    assert game.lake.audit().faults() != {}


def fold(game: Game, rows: pa.Table) -> None:
    unit = game.lake.opened.units.manifests.last
    transaction = Transaction(f"{game.lake.lake.identity()}/gold", unit)
    write_deltalake(
        str(game.lake.lake.path("gold_uno_player_agg")),
        rows,
        mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[transaction]),
    )
    write_quickly(game.lake.lake.storage, game.lake.lake.synced, {"folded": unit}, None)


def test_gold_is_made_anew_when_a_name_gets_another_column(answers: Answers, tmp_path: Path) -> None:
    head = "string game_name = 1; string gamer_id = 2;"
    versions = [
        f"message Event {{ {head} int64 {name} = 3; {more} }}"
        for name, more in (("score", ""), ("points", ""), ("total", ""), ("total", "int64 points = 4;"))
    ]
    game = Game(answers, tmp_path, *versions, rename="alias", gold={"aggregates": GOLD})
    spec, digests = GoldSpec.all_of(game.lake.settings)[0], []
    for version, name in ((1, "score"), (2, "points"), (4, "total")):
        game.send(version, {"game_name": "uno", "gamer_id": "g", name: 1})
        digests.append(spec.digest(planned(game)))
    assert len(set(digests)) == 3
    assert [source_of(field) for field in planned(game)] == [("gamer_id",), ("points",), ("score",)]


def test_a_table_without_aliases_has_the_gold_spec_of_before() -> None:
    spec = GoldSpec(("k",), "t", Gold(aggregates={"m": {"function": "max", "field": "t"}}).columns)  # type: ignore[dict-item]
    columns = pa.schema([("k", pa.string()), ("t", pa.int64())])
    fields, missing = spec.fields(lambda name: ((name,), columns.field(name)), columns, {})
    assert fields is not None
    assert (str(fields), missing) == ("k: string\nt: int64", {})
