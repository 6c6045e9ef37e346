"""Commands that look and change nothing, but for `doctor --repair`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_app.app.cli.options import AsJson, LakeFolder, SettingsFile, load, load_to_write, moment_of
from spark_app.app.text import status_lines
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ExitCode, UnreachableError, UsageError
from spark_app.model.log import log, print_line
from spark_app.page.files import PageFiles
from spark_app.recovery import requests, result_text
from spark_app.settings import config
from spark_app.settings.models import Settings
from spark_app.units.driver.status import problem

if TYPE_CHECKING:
    from spark_app.protobuf.schemas.ledger import Ledger

LOCK_S = 3.0  # the JVM of an app that was killed lets go of the lake after about two


def status(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="the whole status as JSON")] = False,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="print nothing; exit with 0 if the app is healthy, else with 1")
    ] = False,
) -> None:
    """Show lag, last batch and tables, and why the app waits or is held."""
    own = Lake(load(settings, lake, quiet=True, beside=False).lake_address)
    value = read_json(own.storage, own.status)
    trouble = problem(value)
    if value is None and own.storage.exists(own.status):
        trouble = f"{own.storage.uri(own.status)} is damaged: the running app rewrites it every second"
    if healthy:
        raise typer.Exit(1 if trouble else 0)
    if as_json:
        print(json.dumps(value, indent=1))
    else:
        address = PageFiles(own).address()
        pending = [] if value is None else result_text.request_lines(own, requests.pending(own))
        for line in [*status_lines(value, address), *pending]:
            print(line)
    if trouble:
        print(f"not healthy: {trouble}")
        raise typer.Exit(1)


def doctor(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    mend: Annotated[
        bool, typer.Option("--repair", help="repair what is safe to repair automatically; stop the app first")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check lake, checkpoint, topics and object store, also while the app runs. Exits with 65 if the app would refuse
    to start, or if the object store lets two processes write the lake."""
    from spark_app.recovery import doctor

    loaded = load_to_write(settings, lake)
    log.set_level("ERROR")
    own = _lake_of(loaded)
    if mend:
        own.prepare()
        own.lease.acquire(LOCK_S)
        for done in doctor.repair(own, loaded):
            print_line(f"repaired    {done}")
        own.lease.give_back()
    problems = doctor.examine(own, loaded)
    print("\n".join(result_text.doctor_json(problems) if as_json else result_text.doctor_lines(problems)))
    raise typer.Exit(ExitCode.LOSS if any(problem.fatal for problem in problems) else ExitCode.DONE)


def audit(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    acks: Annotated[
        Path | None, typer.Option(help="file in which the producer listed the acknowledged records")
    ] = None,
    sink: Annotated[str | None, typer.Option(help="compare a sink with --received, and nothing else")] = None,
    received: Annotated[
        Path | None, typer.Option(help="file in which the target listed the calls that it has accepted")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the lake with Kafka, record by record, and gold with silver. Exits with 65 if anything is wrong."""
    from spark_app.app.text import verdict_lines
    from spark_app.audit import audit as look
    from spark_app.audit import audit_sink

    if (sink is None) != (received is None):
        raise UsageError("--sink NAME and --received FILE belong together")
    loaded = load(settings, lake)
    if sink is not None and received is not None:
        verdict = audit_sink(loaded, sink, received)
    else:
        verdict = look(loaded, acks, progress=_print_progress if sys.stderr.isatty() else lambda *_: None)
    print(json.dumps(verdict.to_json(), indent=1) if as_json else "\n".join(verdict_lines(verdict)))
    raise typer.Exit(ExitCode.DONE if verdict.clean else ExitCode.LOSS)


def _print_progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done:,} of {total:,} offsets", end=end, file=sys.stderr, flush=True)


def lineage(
    table: Annotated[
        str, typer.Argument(help="a table, or TABLE.COLUMN; empty = all tables in short", show_default=False)
    ] = "",
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show where the rows and columns of a table come from, and where they go. Changes nothing, and needs only the
    lake."""
    from spark_app.app import lineage_text
    from spark_app.page.lineage.lake_graph import LakeGraph

    own = LakeGraph(load(settings, lake, quiet=True))
    name, _, column = table.partition(".")
    graph = own.of(name) if table else own.overview()
    if column:
        endpoint = own.column_of(graph, name, column)
        graph = graph.around(endpoint)
        lines = lineage_text.column_lines(graph, endpoint)
    else:
        lines = lineage_text.table_lines(graph, name) if table else lineage_text.overview_lines(graph, own.ledger)
    print(json.dumps(graph.to_json(), indent=1) if as_json else "\n".join(lines))


def explain(
    table: Annotated[str, typer.Argument(help="a gold table or a table by SQL; empty = all of them in short")] = "",
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    expand: Annotated[
        Path | None, typer.Option(help="write the statements to files of this folder, with each {name} filled in")
    ] = None,
) -> None:
    """Say how a table is kept up, why so, and what its last run cost. Changes nothing, and needs only the lake."""
    from spark_app.app import explain_text

    own = explain_text.Explainer(load(settings, lake, quiet=True))
    lines = own.expand(expand) if expand else own.of(table) if table else own.overview()
    print("\n".join(lines))


def settings(
    file: Annotated[Path | None, typer.Argument(help="TOML file to check, as --settings FILE --check")] = None,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    defaults: Annotated[
        bool, typer.Option(help="print a settings file with all defaults and their descriptions")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="print only what is wrong")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="as --check, and ask brokers, registry, reference tables and webhook, too")
    ] = False,
) -> None:
    """Print the effective values, and check them: SQL and names, and with --live what the servers have. Exits with 78
    if something is wrong."""
    if defaults:
        return print(config.render(), end="")
    from spark_app.app.settings_check import find_faults

    path = file or settings
    loaded = load(path, lake, beside=path is None)
    log.set_level("ERROR")
    for section, values in loaded.model_dump().items() if not (file or check or live) else ():
        for key, value in values.items():
            print(f"{section}.{key} = {value!r}")
    faults = find_faults(loaded, live)
    if faults or file or check or live:
        print(*(faults or ["nothing is wrong" + ("" if live else "; --live asks the servers, too")]), sep="\n")
    raise typer.Exit(ExitCode.CONFIGURATION if faults else ExitCode.DONE)


def shell(
    file: Annotated[typer.FileText | None, typer.Argument(help="SQL or Python to run, as standard input")] = None,
    command: Annotated[str | None, typer.Option("-c", help="SQL or Python to run")] = None,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
) -> None:
    """Start a pyspark shell in which every table of the lake is a view of the same name; for a lake in a bucket it is a
    DuckDB shell. With SQL or Python of an option, a file or standard input it runs that and ends."""
    if file or not (command or sys.stdin.isatty()):
        command = (file or sys.stdin).read()
    loaded = load(settings, lake)
    if loaded.lake_address.scheme:
        from spark_app.app import duckdb_shell

        return duckdb_shell.start(loaded, command)
    from spark_app.app import shell

    shell.start(loaded, command)


WARNED = 1  # the exit code of `check` if there is something to warn about


def show_schemas(
    context: typer.Context,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="show the lines that differ from the version before, side by side")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the schemas of the lake, with their versions and what changed since the version before."""
    if context.invoked_subcommand is not None:
        return
    from spark_app.protobuf.schemas.ledger_text import schema_lines, schemas_json

    ledger = _ledger(load(settings, lake, quiet=True))
    print(json.dumps(schemas_json(ledger, diff), indent=1) if as_json else "\n".join(schema_lines(ledger, diff)))


def check_schema(
    file: Annotated[Path, typer.Argument(help="the .proto file")],
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    subject: Annotated[str, typer.Option(help="its subject; empty = that of the values")] = "",
    imports: Annotated[Path | None, typer.Option(help="folder of imported files, instead of that of the file")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a .proto file that is not registered yet with the newest version of its subject that the lake knows, and
    tell what would happen to the tables. Exits with 1 if there is something to warn about."""
    from spark_app.protobuf.changes import check as schema_check
    from spark_app.protobuf.schemas.descriptors import CompileUnavailable

    loaded = load(settings, lake, quiet=True)
    try:
        verdict = schema_check.check(_ledger(loaded), loaded, file, subject, imports)
    except CompileUnavailable as error:
        raise UnreachableError(f"{file} cannot be compiled now: {error}") from None
    lines = schema_check.verdict_lines(verdict, file)
    print(json.dumps(verdict.to_json(), indent=1) if as_json else "\n".join(lines))
    raise typer.Exit(WARNED if verdict.warns else 0)


def _ledger(settings: Settings) -> Ledger:
    from spark_app.protobuf.schemas.ledger import Ledger

    return Ledger(_lake_of(settings))


def _lake_of(settings: Settings) -> Lake:
    lake = Lake(settings.lake_address)
    if not lake.storage.exists(lake.state):
        raise ConfigurationError(f"lake.path: no lake at {lake.uri}")
    return lake


def check_expectations(
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
    from spark_app.app.text import outcome_lines
    from spark_app.recovery.backtest import backtest

    moment, loaded = moment_of("--since", since), load(settings, lake)
    log.set_level("ERROR")
    outcomes = backtest(loaded, names or [], moment)
    print(json.dumps(outcomes.to_json(), indent=1) if as_json else "\n".join(outcome_lines(outcomes)))
