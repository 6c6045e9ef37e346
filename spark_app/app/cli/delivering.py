"""The way out: `protolake deliver`, and what people ask of the sinks."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_app.app.cli.options import AsJson, LakeFolder, SettingsFile, load, load_to_write
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode, UsageError
from spark_app.model.log import log
from spark_app.model.text import near, one_line

if TYPE_CHECKING:
    from spark_app.settings.models import Settings

Name = Annotated[str, typer.Argument(help="a sink of the settings", show_default=False)]
COUNTS = ("waiting", "accepted", "rejected", "gone")


def deliver(
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    available_now: Annotated[bool, typer.Option(help="send what there is now; then exit with code 0")] = False,
    accept_gap: Annotated[
        bool, typer.Option(help="let sinks go on after the units whose manifests are gone at this start")
    ] = False,
) -> None:
    """Send the rows of committed units to the sinks of the settings, beside the app."""
    loaded = load_to_write(settings, lake)
    log.set_level(loaded.run.log_level)
    if not loaded.all_sinks:
        print("there is no sink in the settings; docs/sinks.md shows some")
        raise typer.Exit(ExitCode.DONE)
    from spark_app.followers.sinks.process import deliver
    from spark_app.page.lineage.rights import UserRights

    is_done = deliver(loaded, accept_gap, available_now, partial(UserRights, loaded))
    raise typer.Exit(ExitCode.DONE if is_done else ExitCode.UNREACHABLE)


def show_sinks(
    context: typer.Context, settings: SettingsFile = None, lake: LakeFolder = None, as_json: AsJson = False
) -> None:
    """Show the sinks: what each has sent, what waits, and why one does not go on."""
    if context.invoked_subcommand:
        return
    from spark_app.followers.sinks import people

    loaded = load(settings, lake, quiet=True)
    found = people.states(Lake(loaded.lake_address), loaded)
    print(json.dumps(found, indent=1) if as_json else "\n".join(_lines(found, loaded)))


def _lines(found: dict[str, dict[str, Any]], settings: Settings) -> list[str]:
    if not found:
        return ["there is no sink in the settings; docs/sinks.md shows some"]
    lines = [f"{'sink':<20}{'state':<10}" + "".join(f"{name:>12}" for name in COUNTS) + "  oldest waits"]
    for name, one in found.items():
        since = one.get("waits_since")
        oldest = f"{time.time() - since / 1e6:,.0f} s" if since else "-"
        counts = "".join(f"{one.get(count, 0):>12,}" for count in COUNTS)
        known = "" if name in settings.all_sinks else "  (not in the settings)"
        lines.append(f"{name:<20}{one['state']:<10}{counts}  {oldest}{known}")
        if one["reason"]:
            lines.append(f"  {one_line(one['reason'])}")
    return lines


def check_sink(name: Name, settings: SettingsFile = None, lake: LakeFolder = None) -> None:
    """Try a sink on the rows that silver has: how many calls, the first bodies, how long at the cap. Sends nothing."""
    from spark_app.followers.sinks import people

    loaded = load(settings, lake, quiet=True)
    trial = people.check(Lake(loaded.lake_address), loaded, _known(loaded, name))
    calls = sum(trial.calls.values())
    for table, rows in trial.rows.items():
        print(f"{table}: {rows:,} rows in {trial.calls[table]:,} calls")
    cap = loaded.all_sinks[name].calls_per_s
    took = f", which take {calls / cap:,.0f} s at {cap:g} calls/s" if cap else ""
    left = "" if trial.is_whole else "; not all rows were read"
    print(f"{sum(trial.rows.values()):,} rows in {calls:,} calls{took}{left}")
    for body in trial.bodies:
        print(f"\n{body.decode()}")


def pause_sink(name: Name, settings: SettingsFile = None, lake: LakeFolder = None) -> None:
    """Let a sink make no further calls until `resume`; what comes meanwhile waits."""
    from spark_app.followers.sinks import state

    loaded = load_to_write(settings, lake)
    state.pause(Lake(loaded.lake_address), _known(loaded, name), "a person has paused it")


def resume_sink(name: Name, settings: SettingsFile = None, lake: LakeFolder = None) -> None:
    """Let a paused sink go on."""
    from spark_app.followers.sinks import state

    loaded = load_to_write(settings, lake)
    state.resume(Lake(loaded.lake_address), _known(loaded, name))


def resend(
    name: Name,
    settings: SettingsFile = None,
    lake: LakeFolder = None,
    rejected: Annotated[bool, typer.Option("--rejected", help="the rows that the target has refused")] = False,
    unit: Annotated[int | None, typer.Option("--from", min=1, help="the rows from this unit on")] = None,
) -> None:
    """Send rows to a sink again, under new keys."""
    from spark_app.followers.sinks import people

    if rejected == (unit is not None):
        raise UsageError("say either --rejected or --from UNIT")
    loaded = load_to_write(settings, lake)
    own = Lake(loaded.lake_address)
    _known(loaded, name)
    print(people.send_rejected(own, loaded, name) if unit is None else people.send_from(own, name, unit))


def _known(settings: Settings, name: str) -> str:
    if name not in settings.all_sinks:
        raise UsageError(f"there is no sink {name} in the settings; {near(name, settings.all_sinks)}")
    return name
