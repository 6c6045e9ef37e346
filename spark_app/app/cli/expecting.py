"""`expect`: commands about expectations, the rules in SQL that rows of silver must meet."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from spark_app.app.cli.options import AsJson, LakeFolder, SettingsFile, load, moment_of
from spark_app.model.log import log


def check(
    names: Annotated[list[str] | None, typer.Argument(help="expectations of the settings; empty = all")] = None,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    since: Annotated[
        str | None, typer.Option(help="only rows that landed then or later, ISO 8601; UTC unless it has an offset")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the rows of history that expectations of the settings pass and fail, also before they are in force. Changes
    nothing, and exits with 0 also if rows fail."""
    from spark_app.app.text.backtest import outcome_lines
    from spark_app.recovery.backtest import backtest

    moment, loaded = moment_of("--since", since), load(settings, lake)
    log.set_level("ERROR")
    outcomes = backtest(loaded, names or [], moment)
    print(json.dumps(outcomes.to_json(), indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
