"""The command line. Light to import: `status` is a health check and must not load Spark."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
import traceback
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from spark_app import config, failpoints
from spark_app.errors import (
    ConfigurationError,
    ExitCode,
    NoSpaceError,
    ProtolakeError,
    SchemaBump,
    UnreachableError,
    UsageError,
)
from spark_app.lake import Lake, read_json
from spark_app.ops.events import LEVELS, log
from spark_app.ops.status import problem
from spark_app.ops.words import status_lines
from spark_app.process import children
from spark_app.records import Cause
from spark_app.recovery import requests, words
from spark_app.recovery.requests import Request
from spark_app.settings import Settings
from spark_app.space import is_full

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Protolake's Spark app."
)
SettingsFile = Annotated[Path | None, typer.Option("--settings", help="TOML file; see spark_app/settings.toml")]
HOLD_SAYS_S = 60.0
LOCK_S = 3.0  # the JVM of an app that was killed lets go of the lake after about two
INTERRUPTED = 130


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
        if is_full(error):
            sys.exit(_say(NoSpaceError(f"{error}: make room and ask again")))
        log.error("bug", type=type(error).__name__, reason=str(error))
        traceback.print_exc()
        sys.exit(ExitCode.BUG)
    finally:
        if "spark_app.session" in sys.modules:  # a JVM must not outlive the command, nor hold the lake
            sys.modules["spark_app.session"].end(clean=False)


def _say(error: ProtolakeError) -> ExitCode:
    print(f"protolake: {error}\n", end="", file=sys.stderr, flush=True)
    return error.exit_code


@app.command()
def run(
    settings: SettingsFile = None,
    available_now: Annotated[bool, typer.Option(help="take what is there, then end with 0")] = False,
    land_only: Annotated[bool, typer.Option(help="write bronze and decode nothing; a later run catches up")] = False,
    accept_loss: Annotated[
        bool, typer.Option(help="what Kafka no longer has at this start goes to lost_events, and is skipped")
    ] = False,
) -> None:
    """Take records from Kafka to bronze, silver and gold."""
    hold = config.wants_hold(settings)
    try:
        loaded = _load(settings)
        hold = loaded.run.hold
        log.level = LEVELS[loaded.run.log_level]
        code, reason = _run(loaded, available_now, land_only, accept_loss)
    except ProtolakeError as error:
        code, reason = _say(error), str(error)
    if code.held and hold:
        _hold(code, reason)
    _leave(code)


def _load(path: Path | None) -> Settings:
    """The settings of a command that writes: from here on this process, its JVM and their workers open what they make
    to nobody whom the settings leave out."""
    loaded = config.load(path)
    os.umask(int(loaded.lake.umask, 8))
    return loaded


def _run(settings: Settings, *how: bool) -> tuple[ExitCode, str]:
    from spark_app.pipeline import Pipeline

    pipeline = Pipeline(settings, *how)
    try:
        code, reason = pipeline.run(), ""
    except SchemaBump as bump:
        log.info("schema bump", reason=str(bump), exit_code=int(ExitCode.BUMP))
        code, reason = ExitCode.BUMP, str(bump)
    except ProtolakeError as error:
        code, reason = _say(error), str(error)
    except Exception as error:
        log.error("bug", type=type(error).__name__, reason=str(error))
        code, reason = ExitCode.BUG, str(error)
    with failpoints.around("leave"):
        pipeline.life.end(code, reason)
    if code.held:
        pipeline.lake.unlock()
    return code, reason


def _hold(code: ExitCode, reason: str) -> None:
    """Stay up, unhealthy, so that no restart policy spins where only an operator can help. The lake is free and the
    JVM gone: whoever repairs the lake need not stop this process first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(ExitCode.DONE))
    if "spark_app.session" in sys.modules:
        sys.modules["spark_app.session"].end(clean=False, last=False)
    children.kill_all(children.descendants(os.getpid()))
    while True:
        print(f"protolake: held with exit code {int(code)}: {reason}\n", end="", file=sys.stderr, flush=True)
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
    lake = Lake(config.load(settings).lake.path)
    value = read_json(lake.status)
    trouble = problem(value)
    if value is None and lake.status.exists():
        trouble = f"{lake.status} is damaged: the app writes another, each second while it runs"
    if healthy:
        raise typer.Exit(1 if trouble else 0)
    if as_json:
        print(json.dumps(value, indent=1))
    elif value is not None:
        print("\n".join([*status_lines(value), *words.request_lines(lake, requests.pending(lake))]))
    if trouble:
        print(f"not healthy: {trouble}")
        raise typer.Exit(1)


Causes = Annotated[list[Cause] | None, typer.Option("--cause", help="only these causes; may be repeated")]
Schemas = Annotated[
    list[str] | None, typer.Option("--schema-id", help="only these schema ids or GUIDs; may be repeated")
]
Moment = Annotated[str | None, typer.Option(help="ISO 8601, of when they were quarantined; UTC unless it says more")]
AsJson = Annotated[bool, typer.Option("--json", help="the result as JSON")]


@app.command()
def replay(
    settings: SettingsFile = None,
    cause: Causes = None,
    schema: Schemas = None,
    since: Moment = None,
    until: Moment = None,
    topic: Annotated[str | None, typer.Option(help="only this topic")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="only this partition")] = None,
    offsets: Annotated[str | None, typer.Option(help="FIRST:END, the end excluded; of every partition chosen")] = None,
    dry_run: Annotated[bool, typer.Option(help="count the candidates, decode nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Decode again what is in quarantine, exactly once: all that is open, or what the options choose."""
    arguments = {
        "causes": [c.value for c in cause or ()],
        "schemas": [_schema_key(key) for key in schema or ()],
        "since": _moment("--since", since),
        "until": _moment("--until", until),
        "topic": topic,
        "partition": partition,
        "offsets": _offsets(offsets),
    }
    if since and until and arguments["since"] >= arguments["until"]:  # type: ignore[operator]
        raise UsageError(f"--since {since} is not before --until {until}")
    filtered = any(value not in (None, []) for value in arguments.values())
    result = _ask(_load(settings), Request("replay", arguments, dry_run))
    print(json.dumps(result, indent=1) if as_json else "\n".join(words.replay_lines(result, filtered)))


@app.command()
def rebuild(
    names: Annotated[list[str] | None, typer.Argument(help="routing names; none = all")] = None,
    settings: SettingsFile = None,
    dry_run: Annotated[bool, typer.Option(help="compare, change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring silver and gold to what bronze says: add what is missing, name what differs. Exit 65 when rows differ."""
    result = _ask(_load(settings), Request("rebuild", {"names": names or []}, dry_run))
    print(json.dumps(result, indent=1) if as_json else "\n".join(words.rebuild_lines(result, dry_run)))
    raise typer.Exit(result["exit_code"])


@app.command()
def doctor(
    settings: SettingsFile = None,
    mend: Annotated[bool, typer.Option("--repair", help="mend what needs no judgement; the app must be down")] = False,
    as_json: AsJson = False,
) -> None:
    """Examine lake, checkpoint and topics, also beside the running app. Exit 65 when a start would refuse."""
    from spark_app.recovery import doctor

    loaded = _load(settings)
    log.level = LEVELS["ERROR"]
    lake = Lake(loaded.lake.path)
    if not lake.state.is_dir():
        raise ConfigurationError(f"lake.path: no lake at {lake.root}")
    if mend:
        lake.prepare()
        lake.lock(LOCK_S)
        for done in doctor.repair(lake, loaded):
            print(f"repaired    {done}", file=sys.stderr, flush=True)
    findings = doctor.examine(lake, loaded)
    print("\n".join(words.doctor_json(findings) if as_json else words.doctor_lines(findings)))
    raise typer.Exit(ExitCode.LOSS if any(finding.fatal for finding in findings) else ExitCode.DONE)


@app.command()
def audit(
    settings: SettingsFile = None,
    acks: Annotated[Path | None, typer.Option(help="lines of the producer, of what it was told is safe")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the lake with Kafka, record by record, and gold with silver. Exit 65 when something is wrong."""
    from spark_app.audit import audit as look
    from spark_app.audit.words import verdict_lines

    verdict = look(config.load(settings), acks, tell=_tell_progress if sys.stderr.isatty() else lambda *_: None)
    print(json.dumps(verdict.to_json(), indent=1) if as_json else "\n".join(verdict_lines(verdict)))
    raise typer.Exit(ExitCode.DONE if verdict.clean else ExitCode.LOSS)


def _tell_progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done:,} of {total:,} offsets", end=end, file=sys.stderr, flush=True)


def _ask(settings: Settings, request: Request) -> dict[str, Any]:
    """The result of a request: by the app that runs, or, when none does, by this process."""
    log.level = LEVELS[settings.run.log_level]
    lake = Lake(settings.lake.path)
    if not lake.tables():
        raise ConfigurationError(f"lake.path: no tables at {lake.root}")
    result: dict[str, Any]
    try:
        if _is_free(lake):
            failpoints.arm(lake.root)
            from spark_app.recovery.alone import execute

            _submit(lake, request, "the app does not run: this command starts a Spark of its own")
            result = execute(settings, lake, request)
        else:
            _submit(lake, request, "the app runs: it executes the request between two batches")
            result = requests.wait_for_answer(lake, request, settings.run.patience_s)
    except KeyboardInterrupt:
        _say(UsageError(f"not waiting any longer; {_stays(lake, request)}"))
        raise typer.Exit(INTERRUPTED) from None
    except Exception:
        if requests.path_of(lake, request).exists():
            print(f"protolake: {_stays(lake, request)}", file=sys.stderr, flush=True)
        raise
    if "error" in result:
        _say(UsageError(result["error"]))
        raise typer.Exit(result["exit_code"])
    return result


def _stays(lake: Lake, request: Request) -> str:
    path = requests.path_of(lake, request)
    return f"the request stays, and is executed by the app or the next command. Remove {path} to withdraw it"


def _submit(lake: Lake, request: Request, how: str) -> None:
    older = words.request_lines(lake, requests.pending(lake))
    requests.submit(lake, request)
    first = ["", "executed before it, as they were asked earlier:", *older] if older else []
    print("\n".join([f"request {request.id}. {how}", *first]), file=sys.stderr, flush=True)


def _is_free(lake: Lake) -> bool:
    """Whether the lake's lock could be taken: then it is held until this process ends."""
    try:
        lake.prepare()
        lake.lock(LOCK_S)
    except UnreachableError:
        return False
    return True


def _schema_key(text: str) -> str:
    """A schema id or GUID as quarantine has it."""
    if text.isdecimal():
        return str(int(text))
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise UsageError(f"--schema-id: {text!r} is neither a schema id nor a GUID") from None


def _moment(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no ISO 8601 date or time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _offsets(text: str | None) -> list[int] | None:
    if text is None:
        return None
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise UsageError(f"--offsets: {text!r} is not FIRST:END with FIRST below END")
    return [int(first), int(end)]


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
