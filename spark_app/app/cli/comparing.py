"""`schemas`: commands about the schemas of a lake and the differences between their versions. They change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_app.app.cli.options import AsJson, LakeFolder, SettingsFile, load
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.settings.models import Settings

if TYPE_CHECKING:
    from spark_app.protobuf.schemas.ledger import Ledger

WARNED = 1  # the exit code of `check` if there is something to warn about


def show(
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


def check(
    file: Annotated[Path, typer.Argument(help="the .proto file")],
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    subject: Annotated[str, typer.Option(help="its subject; empty = that of the values")] = "",
    imports: Annotated[Path | None, typer.Option(help="folder of imported files, instead of that of the file")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a .proto file that is not registered yet with the newest version of its subject that the lake knows, and
    say what would happen to the tables. Exits with 1 if there is something to warn about."""
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

    own = Lake(settings.place)
    if not own.storage.exists(own.state):
        raise ConfigurationError(f"lake.path: no lake at {own.address}")
    return Ledger(own)
