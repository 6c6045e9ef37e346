"""The command line. Light to import: `status` is a health check and must not load Spark."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from spark_app import config
from spark_app.errors import ExitCode, ProtolakeError, SchemaBump
from spark_app.lake import Lake, read_json
from spark_app.ops.events import LEVELS, log
from spark_app.ops.status import problem

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Protolake's Spark app."
)
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="TOML file; see spark_app/settings.toml")]
HOLD_SAYS_S = 60.0


def main() -> None:
    """Run a command; every end is an exit code of `errors.ExitCode`."""
    try:
        sys.exit(app(standalone_mode=False))  # a typer.Exit comes back as its code here
    except typer.Abort:
        sys.exit(ExitCode.USAGE)
    except ProtolakeError as error:
        sys.exit(_say(error))
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")) and hasattr(error, "format_message"):
            print(f"protolake: {error.format_message()}", file=sys.stderr)
            sys.exit(ExitCode.USAGE)
        raise


def _say(error: ProtolakeError) -> ExitCode:
    print(f"protolake: {error}", file=sys.stderr, flush=True)
    return error.exit_code


@app.command()
def run(
    settings: SettingsFile = None,
    available_now: Annotated[bool, typer.Option(help="take what is there, then end with 0")] = False,
    land_only: Annotated[bool, typer.Option(help="write bronze and decode nothing; a later run catches up")] = False,
) -> None:
    """Take records from Kafka to bronze, silver and gold."""
    hold = os.environ.get("PROTOLAKE_RUN__HOLD", "").lower() in ("1", "true", "yes")
    try:
        loaded = config.load(settings)
        hold = loaded.run.hold
        log.level = LEVELS[loaded.run.log_level]
        code, reason = _run(loaded, available_now, land_only)
    except ProtolakeError as error:
        code, reason = _say(error), str(error)
    if code.held and hold:
        _hold(code, reason)
    _leave(code)


def _run(settings: config.Settings, available_now: bool, land_only: bool) -> tuple[ExitCode, str]:
    from spark_app.pipeline import Pipeline

    pipeline = Pipeline(settings, available_now, land_only)
    try:
        code, reason = pipeline.run(), ""
    except SchemaBump as bump:
        log.info("schema bump", reason=str(bump), exit_code=int(ExitCode.BUMP))
        code, reason = ExitCode.BUMP, str(bump)
    except ProtolakeError as error:
        code, reason = _say(error), str(error)
    except Exception as error:
        full = os.strerror(errno.ENOSPC) in str(error)  # before the first batch nothing can wait in place
        log.error("no space left" if full else "bug", type=type(error).__name__, reason=str(error))
        code, reason = (ExitCode.NO_SPACE if full else ExitCode.BUG), str(error)
    if pipeline.status is not None:
        pipeline.status.end("held" if code.held else "stopped", reason or None, bump=code == ExitCode.BUMP)
    return code, reason


def _hold(code: ExitCode, reason: str) -> None:
    """Stay up, unhealthy, so that no restart policy spins where only an operator can help."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    while True:
        print(f"protolake: held with exit code {int(code)}: {reason}", file=sys.stderr, flush=True)
        time.sleep(HOLD_SAYS_S)


def _leave(code: ExitCode) -> None:
    """End at once: everything is durable. After a clean stop the JVM may still write its class archive."""
    from spark_app import session

    session.end(clean=code == ExitCode.DONE)
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


@app.command()
def status(
    settings: SettingsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="the whole status as JSON")] = False,
    healthy: Annotated[bool, typer.Option("--healthy", help="print nothing; exit 0 when healthy, else 1")] = False,
) -> None:
    """Show lag, last batch, tables, and why it waits or is held."""
    value = read_json(Lake(config.load(settings).lake.path).status)
    trouble = problem(value)
    if healthy:
        raise typer.Exit(1 if trouble else 0)
    if as_json:
        print(json.dumps(value, indent=1))
    elif value is not None:
        print("\n".join(_lines(value)))
    if trouble:
        print(f"not healthy: {trouble}")
        raise typer.Exit(1)


def _lines(value: dict[str, Any]) -> list[str]:
    batch = value["batch"] or {}
    lines = [
        f"state       {value['state']}{': ' + value['reason'] if value['reason'] else ''}",
        f"lag         {value['lag']} records",
        f"last batch  {batch.get('records')} records in {batch.get('seconds')} s at {batch.get('at')}",
        f"age         {value['age_s']} s from produced to visible",
        f"starts      {value['starts']}, {value['bumps']} of them left for a schema bump",
        f"bronze      {value['bronze']} rows, {value['deferred']} waiting for their schema",
        f"quarantine  {json.dumps(value['quarantine'])}",
        "",
        f"{'table':<24}{'silver':>12}{'gold':>12}  schema versions",
    ]
    versions = value["versions"]
    for name, table in sorted(value["tables"].items()):
        seen = ", ".join(
            f"v{versions[i]}" if i in versions else f"id {i}" for i in sorted(table["schema_ids"], key=int)
        )
        lines.append(f"{name:<24}{table['silver']:>12}{table['gold']:>12}  {seen}")
    return lines


@app.command()
def settings(
    file: SettingsFile = None,
    defaults: Annotated[bool, typer.Option(help="print all settings with their help, as a settings file")] = False,
) -> None:
    """Check the settings and print what is in force."""
    if defaults:
        print(config.render(), end="")
        return
    for section, values in config.load(file).model_dump().items():
        for key, value in values.items():
            print(f"{section}.{key} = {value!r}")


@app.command()
def shell(settings: SettingsFile = None) -> None:
    """A pyspark shell with every table of the lake registered by its name."""
    from spark_app.shell import start

    start(config.load(settings))
