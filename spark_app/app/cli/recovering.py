"""Requests for the running app or, when none runs, this process: `replay`, `rebuild`, `resume`, `accept-schema`,
`drop-table`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from spark_app.app.cli.examining import LOCK_S
from spark_app.app.cli.exits import report
from spark_app.app.cli.options import AsJson, LakeFolder, SettingsFile, load_to_write, moment_of, offsets_of, schema_key
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.model.errors import ConfigurationError, UnreachableError, UsageError
from spark_app.model.log import log, print_line
from spark_app.recovery import requests, result_text
from spark_app.recovery.requests import Request, replay_arguments, selects_some
from spark_app.settings.models import Settings

INTERRUPTED = 130
Causes = Annotated[list[Cause] | None, typer.Option("--cause", help="only these causes; may be repeated")]
Schemas = Annotated[
    list[str] | None, typer.Option("--schema-id", help="only these schema ids or GUIDs; may be repeated")
]
Moment = Annotated[str | None, typer.Option(help="time of quarantining, ISO 8601; UTC unless it has an offset")]
Decided = Literal["alias", "new_column", "warn", "accept", "quarantine"]


def replay(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    causes: Causes = None,
    schema: Schemas = None,
    since: Moment = None,
    until: Moment = None,
    topic: Annotated[str | None, typer.Option(help="only this topic")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="only this partition")] = None,
    offsets: Annotated[
        str | None, typer.Option(help="offset range FIRST:END, END excluded, in each selected partition")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="only records that fail this expectation; may be repeated")
    ] = None,
    dropped: Annotated[bool, typer.Option(help="dropped records instead of quarantined ones")] = False,
    dry_run: Annotated[bool, typer.Option(help="only count the candidates; decode nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Decode open records in quarantine again, exactly once: all of them, or those that the options select."""
    began, ended = moment_of("--since", since), moment_of("--until", until)
    if dropped and causes:
        raise UsageError("--dropped and --cause: dropped records have no cause, use --rule to select some of them")
    if began is not None and ended is not None and began >= ended:
        raise UsageError(f"--since {since} is not before --until {until}")
    arguments = replay_arguments(
        [cause.value for cause in causes or ()],
        [schema_key(key) for key in schema or ()],
        rule or (),
        dropped,
        since=began,
        until=ended,
        topic=topic,
        partition=partition,
        offsets=offsets_of(offsets),
    )
    filtered = selects_some(arguments)
    result = _execute(load_to_write(settings, lake), Request("replay", arguments, dry_run))
    print(json.dumps(result, indent=1) if as_json else "\n".join(result_text.replay_lines(result, filtered)))


def rebuild(
    names: Annotated[list[str] | None, typer.Argument(help="routing names; empty = all")] = None,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    dry_run: Annotated[bool, typer.Option(help="only compare; change nothing")] = False,
    renew: Annotated[bool, typer.Option("--renew", help="make the named silver tables anew; needs --yes")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --renew: do it; without it nothing is changed")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare silver and gold with bronze: add missing rows, list differing ones. Exits with 65 if rows differ.

    With --renew the rows of the named tables are made anew from bronze, with the columns that the settings give.
    """
    if renew or yes:
        if not (renew and names):
            raise UsageError("--yes needs --renew, and --renew needs the names of tables")
        arguments, is_dry = {"names": names}, dry_run or not yes
        result = _execute(load_to_write(settings, lake), Request("renew", arguments, is_dry))
        print(json.dumps(result, indent=1) if as_json else "\n".join(result_text.renew_lines(result, is_dry)))
        return
    result = _execute(load_to_write(settings, lake), Request("rebuild", {"names": names or []}, dry_run))
    print(json.dumps(result, indent=1) if as_json else "\n".join(result_text.rebuild_lines(result, dry_run)))
    raise typer.Exit(result["exit_code"])


def resume(
    table: Annotated[str, typer.Argument(help="the paused table: its routing name, or the name of the silver table")],
    failing: Annotated[
        Literal["quarantine", "land"], typer.Option(help="what becomes of waiting rows that fail the expectation")
    ],
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Let the rows of a paused table in although its expectation is unchanged. A changed one lets them in at the next
    start.

    The rows that pass the expectation land. Later rows that fail it pause the table again.
    """
    result = _execute(load_to_write(settings, lake), Request("resume", {"table": table, "failing": failing}))
    print(json.dumps(result, indent=1) if as_json else result_text.resume_line(result))


def accept_schema(
    schema: Annotated[str, typer.Argument(help="the schema id or GUID")],
    policy: Annotated[Decided, typer.Option("--as", help="what becomes of its changes")] = "new_column",
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Decide about a schema whose records wait or are in quarantine because of what it changes.

    The decision is final once its records are decoded. A policy that does not suit a change counts as the next weaker
    one: alias, new_column, warn. With `accept` its changes are no warnings.
    """
    arguments = {"schema": schema_key(schema), "policy": policy}
    result = _execute(load_to_write(settings, lake), Request("accept", arguments))
    print(json.dumps(result, indent=1) if as_json else result_text.accept_line(result))


def drop_table(
    table: Annotated[str, typer.Argument(help="a table that no setting and no SQL file makes any more")],
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without it nothing is changed")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove a gold table, or one by SQL, that was taken out of the settings. Tables with records cannot be dropped."""
    result = _execute(load_to_write(settings, lake), Request("drop", {"table": table}, dry_run=not yes))
    print(json.dumps(result, indent=1) if as_json else result_text.drop_line(result))


def _execute(settings: Settings, request: Request) -> dict[str, Any]:
    """The result of a request: by the app that runs, or, when none does, by this process."""
    log.set_level(settings.run.log_level)
    lake = Lake(settings.lake_address)
    if not lake.tables():
        raise ConfigurationError(f"lake.path: no tables at {lake.uri}")
    result: dict[str, Any]
    try:
        if _is_free(lake):
            failpoints.arm(lake.root)
            from spark_app.recovery.executor import execute

            _submit(lake, request, "the app does not run, so this command starts its own Spark session")
            result = execute(settings, lake, request)
            lake.lease.give_back()
        else:
            _submit(lake, request, "the app runs: it executes the request between two batches")
            result = requests.wait_for_result(lake, request, settings.run.connect_timeout_s)
    except KeyboardInterrupt:
        report(UsageError(f"the command stopped waiting; {_stays(lake, request)}"))
        raise typer.Exit(INTERRUPTED) from None
    except Exception:
        if lake.storage.exists(requests.key_of(request)):
            print_line(f"protolake: {_stays(lake, request)}")
        raise
    if "error" in result:
        report(UsageError(result["error"]))
        raise typer.Exit(result["exit_code"])
    return result


def _stays(lake: Lake, request: Request) -> str:
    path = lake.storage.uri(requests.key_of(request))
    return f"the request stays; the app or the next command executes it. Remove {path} to cancel it"


def _submit(lake: Lake, request: Request, how: str) -> None:
    older = result_text.request_lines(lake, requests.pending(lake))
    requests.submit(lake, request)
    first = ["", "these earlier requests are executed first:", *older] if older else []
    print_line("\n".join([f"request {request.id}. {how}", *first]))


def _is_free(lake: Lake) -> bool:
    """Whether this process got the lease of the lake: then it keeps it until it ends."""
    try:
        lake.prepare()
        lake.lease.acquire(LOCK_S)
    except UnreachableError:
        return False
    return True
