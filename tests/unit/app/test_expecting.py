"""`protolake expect check` prints what a backtest has counted, or says in one line what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_app.app.cli import entry
from spark_app.app.text import outcome_lines
from spark_app.model.errors import ExitCode
from spark_app.recovery.backtest.outcomes import ExpectationOutcome, Outcomes, TableOutcome
from tests.support.frames import batch_of
from tests.support.lakes import SmallLake
from tests.unit.recovery.test_backtest import FOUR, IN_FORCE, UNO
from tests.unit.tables.test_expectations import lake_of


def command(monkeypatch: pytest.MonkeyPatch, lake: SmallLake, rules: str, *arguments: str) -> int:
    """The exit code of the command in this process."""
    file = lake.lake.root.parent / "settings.toml"
    file.write_text(f'[lake]\npath = "{lake.lake.root}"\n{rules}')
    monkeypatch.setattr(sys, "argv", ["protolake", "expect", "check", "--settings", str(file), *arguments])
    with pytest.raises(SystemExit) as end:
        entry.main()
    return int(end.value.code or 0)


RULE = '[expectations.small_bet]\ncheck = "bet < 3"\naction = "drop"\n'


def test_the_command_reports_and_exits_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = lake_of(tmp_path / "lake", IN_FORCE)
    lake.take(batch_of(FOUR))
    capsys.readouterr()
    assert command(monkeypatch, lake, RULE) == ExitCode.DONE
    assert capsys.readouterr().out.splitlines() == [
        "table              expectation         checked        failed      share  first failing rows",
        "silver_uno_events  small_bet                 4             2     50.00%  t/0@0 t/0@1",
        "",
        "table                  rows of silver    kept out of silver",
        "silver_uno_events                   1                     3",
        "",
        "checked: all rows; those kept out of silver by expectations were decoded from bronze",
    ]
    assert command(monkeypatch, lake, RULE, "small_bet", "--json", "--since", "2000-01-01") == ExitCode.DONE
    rows = [{"topic": "t", "partition": 0, "offset": offset} for offset in (0, 1)]
    assert json.loads(capsys.readouterr().out) == {
        "since": "2000-01-01T00:00:00+00:00",
        "tables": {
            UNO: {"silver": 1, "bronze": 3, "rules": {"small_bet": {"passed": 2, "failed": 2, "rows": rows}}},
        },
        "undecodable": {},
        "idle": [],
    }


@pytest.mark.parametrize(
    ("rules", "arguments", "code", "words"),
    [
        (RULE, ["smal_bet"], ExitCode.USAGE, "no expectation smal_bet; did you mean small_bet?"),
        (RULE, ["xyz"], ExitCode.USAGE, "no expectation xyz; there are small_bet"),
        (RULE, ["--since", "yesterday"], ExitCode.USAGE, "--since: 'yesterday' is not an ISO 8601"),
        (RULE.replace("bet <", "bett <"), [], ExitCode.CONFIGURATION, "small_bet.check: no column has the name bett"),
        (RULE.replace("bet < 3", "bet"), [], ExitCode.CONFIGURATION, "small_bet.check: is of the type BIGINT"),
        (RULE.replace("bet < 3", "random() < 3"), [], ExitCode.CONFIGURATION, "expectations.small_bet.check"),
        ("", [], ExitCode.CONFIGURATION, "expectations: the settings have none"),
        (RULE + '[event]\nrouting = "gamer_id"\n', [], ExitCode.CONFIGURATION, "the lake"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rules: str,
    arguments: Sequence[str],
    code: ExitCode,
    words: str,
) -> None:
    lake = lake_of(tmp_path / "lake", {})
    lake.take(batch_of(FOUR))
    capsys.readouterr()
    assert command(monkeypatch, lake, rules, *arguments) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), words in said.err) == ("", 1, True), said.err


@pytest.mark.parametrize(
    ("failed", "checked", "share"),
    [
        (0, 0, "0%"),
        (0, 9, "0%"),
        (9, 9, "100%"),
        (1, 10**6, "< 0.01%"),
        (10**6 - 1, 10**6, "> 99.99%"),
        (1, 3, "33.33%"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(failed: int, checked: int, share: str) -> None:
    table = TableOutcome(silver=checked, expectations={"one": ExpectationOutcome(checked, failed)})
    assert outcome_lines(Outcomes(None, {UNO: table}, {}, []))[1].split(maxsplit=4)[4] == share
