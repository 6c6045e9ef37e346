"""The one command, `protolake`: parses, runs, and ends in an exit code. `python -m spark_app` is the same.

Light to import: `status` is a health check and must not load Spark.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from spark_app import __version__
from spark_app.app.cli import delivering, examining, recovering, running
from spark_app.app.cli.exits import report, report_unexpected
from spark_app.lake.files.disk import is_full
from spark_app.model.errors import ExitCode, NoSpaceError, ProtolakeError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Kafka topics of Confluent-framed Protobuf in, Delta tables out. Settings: `protolake settings --defaults`.",
)
COMMANDS = (
    (running.run, "protolake run --settings mine.toml --available-now"),
    (running.page, "protolake page --lake ./lake"),
    (delivering.deliver, "protolake deliver --lake ./lake"),
    (running.spark_master, "protolake spark-master --secret-file ./secret --folder ./master"),
    (running.spark_worker, "protolake spark-worker spark://127.0.0.1:7077 --secret-file ./secret --folder ./worker"),
    (examining.status, "protolake status --lake ./lake"),
    (examining.audit, "protolake audit --lake ./lake --json"),
    (examining.doctor, "protolake doctor --lake ./lake --repair"),
    (recovering.replay, "protolake replay --cause route_name --since 2026-11-01 --dry-run"),
    (recovering.rebuild, "protolake rebuild rummy uno --dry-run"),
    (recovering.resume, "protolake resume rummy --failing quarantine"),
    (recovering.accept_schema, "protolake accept-schema 12 --as alias"),
    (recovering.drop_table, "protolake drop-table gold_uno_hourly --yes"),
    (delivering.resend, "protolake resend crm --rejected"),
    (examining.explain, "protolake explain unified_gold"),
    (examining.lineage, "protolake lineage silver_uno_events.gamer_id"),
    (examining.shell, "protolake shell --lake ./lake"),
    (examining.settings, "protolake settings --defaults > mine.toml"),
)
for command, example in COMMANDS:
    app.command(epilog=f"Example: {example}")(command)
expect = typer.Typer(no_args_is_help=True, help="Expectations: `expect check` tries them on the rows of the past.")
expect.command("check", epilog="Example: protolake expect check known_player --since 2026-11-01")(
    examining.check_expectations
)
app.add_typer(expect, name="expect")
schemas = typer.Typer()
schemas.callback(invoke_without_command=True, epilog="Example: protolake schemas --diff --lake ./lake")(
    examining.show_schemas
)
schemas.command("check", epilog="Example: protolake schemas check orders.proto --subject orders-value")(
    examining.check_schema
)
app.add_typer(schemas, name="schemas")
sinks = typer.Typer()
sinks.callback(invoke_without_command=True, epilog="Example: protolake sinks --lake ./lake")(delivering.show_sinks)
sinks.command("check", epilog="Example: protolake sinks check crm")(delivering.check_sink)
sinks.command("pause", epilog="Example: protolake sinks pause crm")(delivering.pause_sink)
sinks.command("resume", epilog="Example: protolake sinks resume crm")(delivering.resume_sink)
app.add_typer(sinks, name="sinks")


def main() -> None:
    """Run a command; every end is an exit code of `errors.ExitCode`."""
    try:
        sys.exit(app(prog_name="protolake", standalone_mode=False))  # a typer.Exit comes back as its code here
    except typer.Abort:
        sys.exit(ExitCode.USAGE)
    except ProtolakeError as error:
        sys.exit(report(error))
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")) and hasattr(error, "format_message"):
            print(f"protolake: {error.format_message()}", file=sys.stderr)
            sys.exit(ExitCode.USAGE)
        if is_full(error):
            sys.exit(report(NoSpaceError(f"{error}: free some disk space and run the command again")))
        code = report_unexpected(error)
        if code is ExitCode.BUG:
            traceback.print_exc()
        sys.exit(code)
    finally:
        if "spark_app.units.spark.jvm" in sys.modules:  # a JVM must not outlive the command, nor keep the lake locked
            sys.modules["spark_app.units.spark.jvm"].end(clean=False)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        print(f"protolake {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
