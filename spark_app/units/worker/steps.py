"""The steps of a task, from a record's bytes to the rows that the buffers keep until they are files.

Each step takes a part of an Arrow batch. It gives the parts that go on to the next step, and the rows that leave: each
record leaves once, or its row reaches the last step. No step changes a part. `task.STEPS` is their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.catalog import Catalog, Decodable, SchemaKey, wait_for_change
from spark_app.model.causes import Cause, Reject
from spark_app.model.pauses import FailedRow
from spark_app.model.record_schemas import COORDINATES, OMITTED_SCHEMA
from spark_app.protobuf import framing
from spark_app.protobuf import unwrap as wrappers
from spark_app.protobuf.decode.decoder import decoder_for, why_none
from spark_app.protobuf.keys import read_keys
from spark_app.tables.expectations import row_checks
from spark_app.tables.expectations.proto_rules import VIOLATED, judge_of
from spark_app.tables.expectations.row_checks import Checked
from spark_app.tables.projections.row_projections import RowProjections
from spark_app.tables.route import Routed, pick
from spark_app.units.worker import table_rows
from spark_app.units.worker.buffers import Buffers
from spark_app.units.worker.row_router import RowRouter
from spark_app.units.worker.tally import Stopwatch, Tally
from spark_app.units.worker.task_plan import TaskPlan

LEAST_LANDING = 0.5  # share of rows; if fewer land, they are copied, so that the buffers do not keep the others
NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Tools:
    """What the steps of one task share."""

    plan: TaskPlan
    catalog: Catalog
    tally: Tally
    buffers: Buffers
    router: RowRouter
    projections: RowProjections
    watch: Stopwatch


@dataclass(frozen=True)
class Part:
    """Records of one Arrow batch on their way. The first step gets the batch alone; each adds what it finds.

    Attributes:
        batch: all records of the Arrow batch, as they were read.
        records: these records as bronze has them.
        lineage: silver's columns about them.
        values: framed payloads: the records' own values, or those inside wrappers.
        frames: an entry for each value.
        rows: for each value, and later for each row of `table`, the position of its record.
        outer: the wrappers, one for each value or row; None = the values are the records' own.
        message: the message type of the rows, after that of their wrappers and "/"; of values only the wrappers'.
        key: the schema of the rows.
        table: decoded rows, and from *fit* on rows as silver has them.
        routed: the tables of the rows.
        codes: for each row its code in `routed`.
        payloads: for each row the bytes of its message; None if no rules in the .proto count.
        columns: those of the rows' tables.
        violated: for each row the rules in the .proto that its message violates; None if none count.
        errors: position of a row -> the error in which its judgement ends.
        definitions: for each row the number of its definition, 0 = none; None = no row has one.
        landing: the positions of the rows that land; None = all.
    """

    batch: pa.RecordBatch
    records: pa.Table = None
    lineage: pa.Table = None
    values: pa.Array = None
    frames: framing.Frames = field(default_factory=lambda: framing.Frames(NONE, NONE, [], NONE, [], NONE))
    rows: np.ndarray = field(default_factory=lambda: NONE)
    outer: pa.Table | None = None
    message: str = ""
    key: SchemaKey = 0
    table: pa.Table = None
    routed: Routed = field(default_factory=lambda: Routed(NONE, [], []))
    codes: np.ndarray = field(default_factory=lambda: NONE)
    payloads: pa.Array = None
    columns: pa.Schema = None
    violated: pa.Array = None
    errors: Mapping[int, str] = field(default_factory=dict)
    definitions: np.ndarray | None = None
    landing: np.ndarray | None = None


@dataclass(frozen=True)
class Rejected:
    """Records for quarantine.

    Attributes:
        records: those that `rejects` name by their positions.
        message: the message type; "" = unknown.
        schema: the key of the schema, if the schema was refused; else "".
        failed: for each reject the rules that keep the row out of silver, if rules do.
    """

    records: pa.Table
    rejects: Sequence[Reject]
    message: str = ""
    schema: str = ""
    failed: Sequence[table_rows.Failed] = ()


@dataclass(frozen=True)
class Deferred:
    """Records that are decoded later.

    Attributes:
        rows: their positions among `records`.
        waits_for: see `table_rows.deferred_rows`.
        paused: the routing name of their table, if it is paused; else "".
    """

    records: pa.Table
    rows: np.ndarray
    waits_for: SchemaKey | None
    paused: str = ""


@dataclass(frozen=True)
class Dropped:
    """Records that no table gets because of rules: `rows` are their positions, with the rules of each in `failed`."""

    records: pa.Table
    rows: np.ndarray
    failed: Sequence[table_rows.Failed]


Left = Rejected | Deferred | Dropped
Found = Iterator[Part | Left]


def frame(tools: Tools, part: Part) -> Found:
    """Find schema, message and payload of each value. Bronze gets all records here, whatever becomes of them."""
    plan, report = tools.plan, tools.tally.report
    values = part.batch.column("value")
    frames = framing.split(values, part.batch.column("headers"), bare=plan.unframed)
    records = table_rows.bronze_rows(part.batch, frames, plan.topic_ids, plan.landed_at)
    tools.tally.count_records(records)
    if plan.write_bronze:
        tools.buffers.add(plan.layout.bronze, records)
    if OMITTED_SCHEMA.names[0] in records.column_names:
        yield _oversized(tools, records, frames)
    report.tombstones += int((frames.status == framing.TOMBSTONE).sum())
    if plan.land_only:
        yield Deferred(records, np.flatnonzero(~np.isin(frames.status, (framing.TOMBSTONE, framing.OMITTED))), None)
        return
    keys = read_keys(part.batch, tools.catalog) if plan.framed_keys else None
    for key, rows in keys.unresolved.items() if keys else ():
        rows = rows[frames.status[rows] == framing.OK]  # the record is deferred as a whole
        if len(rows):
            yield from _unresolved(tools, records, rows, key)
            frames.refuse(rows, framing.HELD)
    lineage = table_rows.lineage_rows(records, keys.texts if keys else None)
    yield replace(part, records=records, lineage=lineage, values=values, frames=frames, rows=np.arange(len(values)))


def _oversized(tools: Tools, records: pa.Table, frames: framing.Frames) -> Rejected:
    """Refuse the records whose value was too large to be kept: nothing can ever decode them."""
    sizes, digests = (records.column(name) for name in OMITTED_SCHEMA.names)
    rows = pc.indices_nonzero(sizes.is_valid())
    frames.refuse(rows.to_numpy(), framing.OMITTED)
    tools.tally.report.value_bytes += pc.sum(sizes).as_py()
    # A record that is read from bronze may have been omitted under another limit.
    limit = f", the most is {tools.plan.max_record_bytes}" if tools.plan.write_bronze else ""
    details = ((row, f"{sizes[row]} bytes{limit}; SHA-256 {digests[row]}") for row in rows.to_pylist())
    return Rejected(records, [(row, Cause.RECORD_SIZE, detail) for row, detail in details])


def _unresolved(tools: Tools, records: pa.Table, rows: np.ndarray, key: SchemaKey) -> Iterator[Deferred]:
    """Report a schema id that is new to the driver; defer the records of one that cannot be resolved now."""
    if key in tools.catalog.paused:
        yield Deferred(records, rows, wait_for_change(key))
    elif key in tools.catalog.waiting or tools.plan.defer_new:
        yield Deferred(records, rows, key)
    else:
        tools.tally.count_new_id(key, len(rows))


def decode(tools: Tools, part: Part) -> Found:
    """Decode the payloads, those of one schema and message type at once."""
    for status, cause in framing.CAUSES.items():
        nameless = part.rows[part.frames.nameless(status)]
        if len(nameless):
            yield _all_rejected(part, nameless, cause, message=part.message)
    for group in part.frames.groups():
        yield from _decode_group(tools, part, group)


def _decode_group(tools: Tools, part: Part, group: np.ndarray) -> Found:
    """Decode payloads of the same schema, message index and status; `group` are their positions among the values."""
    catalog, rows = tools.catalog, part.rows[group]
    key, status = part.frames.key_of(group[0]), int(part.frames.status[group[0]])
    if framing.is_beyond(key):
        yield _all_rejected(part, rows, Cause.SCHEMA_UNKNOWN, f"{key} is not a schema id: the largest is 2^31 - 1")
    elif key in catalog.refused:
        cause, detail = catalog.refused[key]
        yield _all_rejected(part, rows, Cause(cause), detail, schema=str(key))
    elif key not in catalog.decodable:
        yield from _unresolved(tools, part.records, rows, key)
    elif status != framing.OK:  # it is Protobuf, and so should have had a message index
        yield _all_rejected(part, rows, framing.CAUSES[status], message=part.message)
    else:
        yield from _decode_payloads(tools, replace(part, key=key, rows=rows), group, catalog.decodable[key])


def _decode_payloads(tools: Tools, part: Part, group: np.ndarray, decodable: Decodable) -> Found:
    """Decode payloads of a schema; `part.rows` has those of the group only."""
    frames, options = part.frames, tools.plan.options
    index, body = frames.indexes[frames.index[group[0]]], int(frames.body[group[0]])
    is_wrapper = tools.plan.wrapper is not None and part.outer is None
    if is_wrapper:
        options = replace(options, defaults=True)  # an empty payload is an event whose fields are all unset
    decoder = decoder_for(decodable, index, options)
    if decoder is None:
        yield _all_rejected(part, part.rows, Cause.SCHEMA_INDEX, why_none(decodable, index, options))
        return
    message = (f"{part.message}/" if part.message else "") + tools.catalog.type_of(part.key, decoder.full_name)
    if is_wrapper and not decoder.schema.names:
        yield _all_rejected(part, part.rows, Cause.FRAME_WRAPPER, "the message has no fields", message)
        return
    bodies = pc.binary_slice(pick(part.values, group), body, 2**31 - 1)
    decoded = decoder.decode(bodies)
    note = f"; the rule set of its schema has {decodable.encrypted}" if decodable.encrypted else ""
    rejects = ((row, cause, detail + note) for row, cause, detail in decoded.rejects)
    yield Rejected(part.records, _at(part.rows, rejects), message)
    if decoded.misfit:
        tools.tally.report.misfits.setdefault(str(part.key), decoded.misfit)
    if len(decoded.rows):
        outer = None if part.outer is None else pick(part.outer, group[decoded.rows])
        payloads = pick(bodies, decoded.rows) if tools.plan.are_judged else None
        rows = part.rows[decoded.rows]
        yield replace(part, table=decoded.table, rows=rows, message=message, outer=outer, payloads=payloads)


def unwrap(tools: Tools, part: Part) -> Found:
    """Decode the messages inside wrappers; other rows go on as they are."""
    if tools.plan.wrapper is None or part.outer is not None:
        yield part
        return
    values, frames = wrappers.unwrap(part.table, tools.plan.wrapper)
    yield from decode(tools, replace(part, values=values, frames=frames, outer=part.table))


def route(tools: Tools, part: Part) -> Found:
    """Find the table of each row. The rows of paused tables are deferred."""
    plan, rows = tools.plan, part.rows
    routed, table = tools.router.route(part.table, len(rows), part.message, part.outer)
    if plan.defer_new:
        new = [code for code, result in enumerate(routed.results) if result.new]
        yield Deferred(part.records, rows[np.isin(routed.codes, new)], None)
    else:
        tools.tally.count_new_values(routed, part.message)
    yield Rejected(part.records, _at(rows, routed.rejects()), part.message)
    for code, paused in ((code, result.paused) for code, result in enumerate(routed.results)):
        if paused is not None:
            yield Deferred(part.records, rows[routed.codes == code], plan.paused[paused], paused)
    yield replace(part, table=table, routed=routed)


def fit(tools: Tools, part: Part) -> Found:
    """Give the rows the column types of their tables, the record's lineage, and the schema."""
    for rows, (good, fitted, misfits), columns in tools.router.fit(part.routed, part.table):
        yield Rejected(part.records, _at(part.rows[rows], misfits), part.message)
        kept = rows[good]
        if len(kept):
            rows, codes = part.rows[kept], part.routed.codes[kept]
            silver = table_rows.silver_rows(fitted, pick(part.lineage, rows), part.key)
            payloads = None if part.payloads is None else pick(part.payloads, kept)
            yield replace(part, table=silver, rows=rows, codes=codes, columns=columns, payloads=payloads)


def judge(tools: Tools, part: Part) -> Found:
    """Judge the messages by the rules in their .proto, if rules of their tables ask for it."""
    plan, origin = tools.plan, (part.key, part.message)
    names = {str(part.routed.results[code].name) for code in np.unique(part.codes).tolist()} if plan.are_judged else ()
    if not plan.keep_violated and not any(origin in plan.definitions.by_origin.get(name, {}) for name in names):
        yield part
        return
    full_name = part.message.rpartition("/")[2].partition("#")[0]
    with tools.watch.step("check"):
        own = judge_of(tools.catalog.decodable[part.key].descriptor_set, full_name)
        violated, errors = own.violations(part.payloads.to_pylist())
    yield replace(part, violated=violated, errors=errors)


def check(tools: Tools, part: Part) -> Found:
    """Check the rows by the rules of their tables. A few rows that fail stay among the others, without a table, because
    a copy would cost more."""
    definitions, types = tools.plan.definitions, tools.router.types
    if not definitions:
        yield part
        return
    table = part.table if part.violated is None else part.table.append_column(VIOLATED, part.violated)
    with tools.watch.step("check"):
        origin = (part.key, part.message)
        checked = row_checks.check(part.routed, part.codes, table, definitions, types(part.columns), origin)
    tools.tally.count_checks(checked)
    for name, (position, rule) in checked.failing.items():
        topic, _, partition, offset = (part.records.column(n)[int(part.rows[position])].as_py() for n in COORDINATES)
        tools.tally.pause(name, FailedRow(topic, partition, offset, rule.name, rule.check))
    yield from _kept_out(tools, part, checked)
    landing, numbers = checked.landing(len(part.codes)), checked.numbers
    if landing is None or len(landing) >= len(part.codes) * LEAST_LANDING:
        yield replace(part, definitions=numbers, landing=landing)
    elif len(landing):
        numbers = None if numbers is None else numbers[landing]
        table, rows, codes = pick(part.table, landing), part.rows[landing], part.codes[landing]
        yield replace(part, table=table, rows=rows, codes=codes, definitions=numbers)


def _kept_out(tools: Tools, part: Part, checked: Checked) -> Iterator[Left]:
    """The rows that fail rules which keep them out of silver."""
    for out in checked.kept_out:
        rows, names = part.rows[out.rows], (part.routed.results[code].name for code in part.codes[out.rows].tolist())
        failed = [(tools.plan.layout.silver_of(str(name)), out.rules, out.definition) for name in names]
        if out.action == "quarantine":
            detail = f"fails {', '.join(out.rules)}"
            said = (f"{detail}: {part.errors[row]}" if row in part.errors else detail for row in out.rows.tolist())
            rejects = [(row, Cause.EXPECT_FAILED, why) for row, why in zip(rows.tolist(), said, strict=True)]
            yield Rejected(part.records, rejects, part.message, failed=failed)
        else:
            yield Dropped(part.records, rows, failed)


def project(tools: Tools, part: Part) -> Found:
    """Give the rows that land the columns of their definitions, and the number of their table in this task."""
    positions = slice(None) if part.landing is None else part.landing
    numbers = np.full(len(part.codes), table_rows.NOWHERE)
    numbers[positions] = tools.tally.count_silver(part.routed, part.codes[positions], part.key)
    keeps = tools.plan.keep_violated and part.violated is not None
    table = part.table.append_column(VIOLATED, part.violated) if keeps else part.table
    rows = table_rows.numbered_rows(table, part.definitions, numbers)
    with tools.watch.step("project"):
        for table in tools.projections.split(rows, part.definitions, tools.router.types(part.columns)):
            yield replace(part, table=table)


def write(tools: Tools, part: Part) -> Found:
    """Buffer the rows; the buffers become files when they are full, or when the task ends."""
    tools.buffers.add_silver(part.table)
    return iter(())


def _all_rejected(
    part: Part, rows: np.ndarray, cause: Cause, detail: str = "", message: str = "", schema: str = ""
) -> Rejected:
    return Rejected(part.records, [(row, cause, detail) for row in rows.tolist()], message, schema)


def _at(rows: np.ndarray, rejects: Iterable[Reject]) -> list[Reject]:
    """Rejects by positions among the records; `rows` has these for the positions that `rejects` have."""
    return [(int(rows[row]), cause, detail) for row, cause, detail in rejects]
