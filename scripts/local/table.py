"""Shows a running stack as a live table, or as lines without a terminal.

Input: a `View`, created for each refresh. Output: rich renderables or lines.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from scripts.local.program import Exit, Process
from scripts.local.status import Pause, Status
from scripts.local.status import Table as Rows
from spark_app.model.errors import ExitCode

NO_ROWS = Rows(0, 0, {})
RELAUNCHING = "relaunching for the new schema"
BY_ACTION = {"warn": "warned", "drop": "dropped", "quarantine": "quarantined"}  # action of the rules -> heading


@dataclass(frozen=True)
class View:
    """The state of the stack at one time; times in seconds.

    Attributes:
        troubles: lines about programs that are down.
        page: the address of the page, if one runs.
    """

    status: Status
    processes: list[Process]
    exits: list[Exit]
    troubles: list[str]
    up: float
    first_silver: float | None
    lake: Path
    logs: Path
    had_silver: bool = False  # an earlier run wrote rows
    page: str | None = None


def renderable(view: View) -> Group:
    """The live table. It has columns for rules once rows have failed one, and for waiting rows while tables are
    paused."""
    status = view.status
    actions = BY_ACTION if any(rows.failed for rows in status.tables.values()) else {}
    waiting = ["waiting"] if status.paused else []
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("game")
    for column in ("silver rows", "gold rows", *actions.values(), *waiting):
        table.add_column(column, justify="right")
    table.add_column("schema versions")
    for name in sorted(status.tables.keys() | status.paused.keys()):
        rows, pause = status.tables.get(name, NO_ROWS), status.paused.get(name)
        counts = [rows.silver, rows.gold, *(rows.failed.get(action, 0) for action in actions)]
        held = [f"{pause.rows:,}" if pause else ""] if waiting else []
        seen = "  ".join(f"{version} {count:,}" for version, count in sorted(rows.versions.items()))
        table.add_row(name, *(f"{count:,}" for count in counts), *held, seen)
    troubles = [Text(line, style="bold red") for line in view.troubles]
    return Group(table, Text(), *(Text(line) for line in summary(view)), *troubles)


def plain(view: View) -> Iterator[str]:
    """The same content as lines."""
    tables = sorted(view.status.tables.items())
    games = "  ".join(f"{name} {rows.silver}/{rows.gold}" for name, rows in tables)
    versions = sum((Counter(rows.versions) for _, rows in tables), Counter[str]())
    if games:
        yield f"silver/gold: {games}"
        yield "versions: " + "  ".join(f"{name} {count}" for name, count in sorted(versions.items()))
    failed = sum((Counter(rows.failed) for _, rows in tables), Counter[str]())
    if failed:
        yield "rules: " + "  ".join(f"{said} {failed[action]}" for action, said in BY_ACTION.items())
    yield from summary(view)
    yield from view.troubles


def news(view: View) -> object:
    """The parts whose change is printed; rates and ages are left out."""
    status = view.status
    return (
        status.tables,
        status.paused,
        status.kept_out,
        status.quarantine,
        status.deferred,
        status.dropped,
        status.state,
        view.processes,
        view.troubles,
        view.page,
    )


def summary(view: View) -> Iterator[str]:
    """Three lines: the stream, the processes, the addresses and folders; one more for paused tables, and one for each
    schema that is kept out."""
    status, app = view.status, _app(view)
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(status.quarantine.items()) if count)
    flow = (
        f"{status.rate:,.0f} rows/s",
        f"age {_or_dash(status.age, '.1f')} s",
        f"lag {_or_dash(status.lag, ',d')}",
    )
    yield " · ".join(
        (
            *((app,) if app == RELAUNCHING else flow),
            f"quarantine {status.quarantined:,}" + (f" ({causes})" if causes else ""),
            f"deferred {status.deferred:,}",
            *((f"dropped {status.dropped:,}",) if status.dropped else ()),
            _restarts(view.exits),
        )
    )
    new = "new silver rows" if view.had_silver else "silver rows"
    first = f"no {new} yet" if view.first_silver is None else f"first {new} after {view.first_silver:.0f} s"
    told = (f"app {app}",) if app and app != RELAUNCHING else ()
    yield " · ".join((*map(_process, view.processes), *told, first, f"up {_duration(view.up)}"))
    if status.paused:
        yield "paused: " + " · ".join(_pause(name, pause) for name, pause in sorted(status.paused.items()))
    for schema, change in sorted(status.kept_out.items()):
        yield f"kept out: schema {schema}, {change}; decide: ./scripts/protolake accept-schema {schema} --as ..."
    if view.page:
        yield f"page {view.page}"
    yield f"lake {view.lake} · logs {view.logs}"


def _pause(name: str, pause: Pause) -> str:
    how = "are let in" if pause.let_in else f"wait for {pause.rule}"
    return f"{name}, {pause.rows:,} rows {how}"


def _app(view: View) -> str | None:
    """The state of the app; None if its process is down, which is shown instead."""
    spark = next((one for one in view.processes if one.name == "spark"), None)
    if spark is not None and spark.is_down:
        return None
    state = view.status.state
    if state in ("starting", "stopped") and view.exits and view.exits[-1].code == ExitCode.BUMP:
        return RELAUNCHING
    return "starting Spark" if state == "starting" else state


def _restarts(exits: list[Exit]) -> str:
    bumps = sum(one.code == ExitCode.BUMP for one in exits)
    others = sum(one.code != ExitCode.BUMP and not one.asked for one in exits)
    return f"restarts: {bumps} schema bump, {others} other"


def _process(process: Process) -> str:
    code = "" if process.code is None else f" ({process.code})"
    return f"{process.name} {process.state}{code}"


def _or_dash(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
