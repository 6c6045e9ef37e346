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
from scripts.local.status import Status
from spark_app.app.text import BY_ACTION
from spark_app.model.errors import ExitCode

RELAUNCHING = "relaunching for the new schema"


@dataclass(frozen=True)
class View:
    """The state of the stack at one time; times in seconds.

    Attributes:
        troubles: lines about programs that are down.
        page: the address of the page, if one runs.
        served: that of the PostgreSQL that is started, and where its password is.
    """

    status: Status
    processes: list[Process]
    exits: list[Exit]
    troubles: list[str]
    up: float
    first_silver: float | None
    lake: str
    logs: Path
    had_silver: bool = False  # an earlier run wrote rows
    page: str | None = None
    served: str | None = None


def renderable(view: View) -> Group:
    """The live table, with the tables and notes of `protolake status`."""
    headings, *rows = view.status.rows
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number in (0, len(headings) - 1) else "right")
    for cells in rows:
        table.add_row(*map(Text, cells))
    troubles = [Text(line, style="bold red") for line in view.troubles]
    notes = map(Text, view.status.notes)
    return Group(table, Text(), *map(Text, summary(view)), *troubles, *notes)


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
        yield "expectations: " + "  ".join(f"{word} {failed[action]}" for action, word in BY_ACTION.items())
    yield from summary(view)
    yield from view.troubles
    yield from view.status.notes


def news(view: View) -> object:
    """The parts whose change is printed; rates and ages are left out."""
    status = view.status
    return (
        status.tables,
        status.notes,
        status.quarantine,
        status.deferred,
        status.dropped,
        status.lost,
        status.state,
        view.processes,
        view.troubles,
        view.page,
    )


def summary(view: View) -> Iterator[str]:
    """The stream, the processes, the address of the page, and the folders."""
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
            f"bronze {status.bronze:,}",
            f"quarantine {status.quarantined:,}" + (f" ({causes})" if causes else ""),
            f"deferred {status.deferred:,}",
            *((f"dropped {status.dropped:,}",) if status.dropped else ()),
            *((f"lost {status.lost:,}",) if status.lost else ()),
            _restarts(view.exits),
        )
    )
    new = "new silver rows" if view.had_silver else "silver rows"
    first = f"no {new} yet" if view.first_silver is None else f"first {new} after {view.first_silver:.0f} s"
    apps = (f"app {app}",) if app and app != RELAUNCHING else ()
    yield " · ".join((*map(_process, view.processes), *apps, first, f"up {_duration(view.up)}"))
    if view.page:
        yield f"page {view.page}"
    if view.served:
        yield f"SQL {view.served}"
    yield f"lake {view.lake} · logs {view.logs}"


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
