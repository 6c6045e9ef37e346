"""Settings that name an alias by its field, in lakes that pause, unwrap messages, restart and make tables anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_app.lake.files.state_files import read_durable
from spark_app.recovery.decisions import Resume
from spark_app.recovery.requests import Request
from tests.support.answers import Answers
from tests.support.decisions import drain
from tests.support.frames import batch_of, frame
from tests.support.games import Game
from tests.support.projections import renew
from tests.support.protos import PROTO3, compile_text, message_class

SCORE, POINTS = (f"int32 {name} = 3;" for name in ("score", "points"))
SILVER: dict[str, Any] = {"columns": {"double": "points * 2"}, "drop": ["points"]}


def rule(check: str, action: str) -> dict[str, Any]:
    return {"r": {"check": check, "action": action}}


def definitions(game: Game) -> Any:
    return read_durable(game.lake.lake.storage, game.lake.lake.definitions)


def test_a_pause_goes_on_after_a_restart_until_a_person_decides(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, SCORE, POINTS, rename="alias")
    game.send(2, {"points": 9})
    game.lake.reopen(expectations=rule("points > 5", "pause"))
    game.send(2, {"points": 1}, {"points": 7})
    assert game.lake.opened.paused.pauses["uno"].check == '"score" > 5'
    game.lake.reopen()
    drain(game.lake)
    game.send(1, {"score": 8})
    assert game.lake.opened.paused.pauses["uno"].rows == 3
    job = Resume(game.lake.opened, Request("resume", {"table": "uno", "failing": "quarantine"}))
    while job.step() is not None:
        pass
    drain(game.lake)
    assert (game.rows("score"), game.quarantined()) == ([(9,), (7,), (8,)], ["expect_failed"])
    assert game.lake.opened.paused.pauses == {}
    game.check()


def test_restarts_make_no_more_definitions(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, SCORE, POINTS, rename="alias")
    game.send(2, {"points": 9})
    found = []
    for _ in range(3):
        game.lake.reopen(expectations=rule("points > 5", "quarantine"), silver=SILVER)
        game.send(2, {"points": 8}, {"points": 1})
        found.append(definitions(game))
    assert found[0] == found[1] == found[2]
    assert game.rows("score", "double") == [(9, None), (None, 16), (None, 16), (None, 16)]
    game.lake.reopen(
        expectations=rule('"score" > 5', "quarantine"), silver={"columns": {"double": '"score" * 2'}, "drop": ["score"]}
    )
    game.send(1, {"score": 8})
    assert len(definitions(game)) == len(found[0])
    game.check()


def test_a_table_that_is_made_anew_has_the_columns_in_force(answers: Answers, tmp_path: Path) -> None:
    game = Game(answers, tmp_path, SCORE, POINTS, rename="alias")
    game.send(1, {"score": 4})
    game.send(2, {"points": 9})
    game.lake.reopen(silver=SILVER)
    renew(game.lake, "uno")
    game.lake.units.check_expectations()
    assert game.columns() == {"double"}
    assert game.rows("double") == [(8,), (18,)]
    game.check()


OUTER = "message Event {{ string {} = 1; bytes payload = 2; int32 {} = 3; }}"
INNER = compile_text(f"{PROTO3} message Inner {{ string gamer_id = 1; }}", schema_id=50)


def test_fields_of_a_wrapper_have_both_names(answers: Answers, tmp_path: Path) -> None:
    texts = (OUTER.format(*names) for names in (("game_name", "size"), ("game", "length")))
    settings = {"wrapper": {"payload": "payload"}, "event": {"routing": "game"}}
    game = Game(answers, tmp_path, *texts, rename="alias", **settings)
    game.lake.learn(INNER)
    game.lake.opened.resolver.resolve_new([12])
    game.lake.reopen(expectations=rule("_wrapper.length > 5", "quarantine"))
    payload = frame(50, message_class(INNER, "Inner")(gamer_id="g").SerializeToString())
    for version, names in ((1, ("game_name", "size")), (2, ("game", "length"))):
        kind = message_class(compile_text(game.subject.texts[version - 1]), "Event")
        wrapped = [kind(**{names[0]: "uno", names[1]: size}, payload=payload) for size in (9, 1)]
        framed = [frame(10 + version, one.SerializeToString()) for one in wrapped]
        game.lake.take(batch_of(framed, first=game.lake.ends.get(0, 0)))
    assert game.rows("_wrapper") == [({"game_name": "uno", "size": 9},)] * 2
    assert game.quarantined() == ["expect_failed"] * 2
    game.check()
