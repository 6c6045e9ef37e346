"""What people ask of the sinks: how they are, to send again, and what a sink would have sent."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from spark_app.followers.sinks import state
from spark_app.followers.sinks.ledger import ledger_folder
from spark_app.followers.sinks.open_sink import sink_of
from spark_app.followers.sinks.plan import CALL, LANE, Part
from spark_app.followers.sinks.silver_rows import ROW, SilverRows
from spark_app.followers.sinks.sink import OPERATION, Call
from spark_app.lake.delta.table_handles import Tables
from spark_app.lake.files.state_files import numbers_of
from spark_app.lake.lake import Lake
from spark_app.lake.spool import Spool
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.model.record_schemas import LINEAGE_COORDINATES
from spark_app.settings.models import Settings

WHEN = ", as soon as `protolake deliver` runs"
MOST_CHECKED = 1_000_000  # rows that `check` reads
BODIES = 3


def states(lake: Lake, settings: Settings) -> dict[str, dict[str, Any]]:
    """Sink -> what its process has last said of it; "waits" if that never was. Also those that left the settings."""
    return {name: {"state": "waits", "reason": ""} for name in settings.all_sinks} | state.read_all(lake)


def send_from(lake: Lake, name: str, unit: int) -> str:
    """Ask for the rows from this unit on; returns a line about it."""
    there = set(numbers_of(lake.storage, lake.manifests))
    gone = next((number for number in range(max(there, default=0), unit - 1, -1) if number not in there), 0)
    if gone:
        raise UsageError(f"--from: the manifests up to unit {gone} were removed: the first that can be is {gone + 1}")
    state.request(lake, name, {"from": unit})
    return f"{name} sends the rows of units from {unit} on again{WHEN}"


def send_rejected(lake: Lake, settings: Settings, name: str) -> str:
    """Ask for the rows that were rejected and not sent again; returns a line about it."""
    after = state.read(lake, name).get("resent", 0)
    found = rejected(lake, settings, name, after)
    if not found:
        return f"no row of {name} was rejected since the last time"
    tables = defaultdict(list)
    for table, row, _ in found:
        value = json.loads(row)
        if set(LINEAGE_COORDINATES) <= value.keys() and OPERATION not in value:
            tables[table].append([value[one] for one in LINEAGE_COORDINATES])
    upto = max(number for _, _, number in found)
    state.request(lake, name, {"rejected": tables, "upto": upto})
    return f"{name} sends {len(found):,} rejected rows again{WHEN}"


def rejected(lake: Lake, settings: Settings, name: str, after: int) -> set[tuple[str, str, int]]:
    """(table, row as the ledger has it, number of the line) of the rejected rows, wherever they are by now."""
    found = set[tuple[str, str, int]]()
    table = Tables(lake, settings.lake, settings.layout).get(settings.layout.sink_rejects)
    if table is not None:
        chosen = (ds.field("sink") == name) & (ds.field("number") > after)
        rows = table.to_pyarrow_dataset().to_table(["table", "row", "number"], filter=chosen)
        found |= {(row["table"], row["row"], row["number"]) for row in rows.to_pylist()}
    lines = Spool(lake.storage, ledger_folder(lake.sink(name))).read(after)
    return found | {(line["table"], row, number) for number, line in lines.items() for row in line["rejects"]}


@dataclass
class Trial:
    """What a sink would have sent of the rows that silver has.

    Attributes:
        rows, calls: how many, of each table.
        bodies: the first calls, as JSON lines.
        is_whole: whether all rows were read.
    """

    rows: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    is_whole: bool = True


def check(lake: Lake, settings: Settings, name: str) -> Trial:
    """Try the settings of a sink on the rows of the past. Nothing is sent.

    Raises:
        ConfigurationError: they do not fit the tables.
    """
    sink, trial = settings.all_sinks[name], Trial()
    target = sink_of(name, settings, lake)
    target.open(sink.options)
    if not sink.is_append:
        raise ConfigurationError(f"sinks.{name}: only a sink from silver can be tried on the past")
    rows, left = SilverRows(lake, settings, name, sink), MOST_CHECKED
    for table in filter(rows.is_sent, lake.tables()):
        keys = sorted(rows.tables.files(table))
        found = []
        for some in rows.added(table, keys):
            found.append(some)
            left -= len(some)
            if left < 0:
                trial.is_whole = False
                break
        if found:
            part = Part.of(sink, table, rows.name_of(table), keys, pa.concat_tables(found))
            trial.rows[table], trial.calls[table] = len(part.rows), len(part.starts) - 1
            for start, stop in itertools.islice(itertools.pairwise(part.starts), BODIES - len(trial.bodies)):
                wanted = part.rows.slice(start, stop - start).drop_columns([CALL, LANE])
                own = rows.find(table, keys, wanted).drop_columns(ROW)
                trial.bodies.append(b"\n".join(Call("", table, part.name, own).lines))
    return trial
