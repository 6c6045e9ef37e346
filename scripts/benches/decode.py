"""Measures rows per second from payloads to columns: this decoder (strict and not strict), its fallback, and naive
ways.

In one process the decoders take turns on the same Arrow arrays of payloads, of which none, some, half and all are bad.
`loop` is the naive way: parse each payload, make a dict of it, and a table of the dicts. Then the complete task is
measured, with clean and with only bad records. Last, as Spark jobs, a row UDF that parses is compared with mapInArrow
with this decoder.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.message import DecodeError

from scripts.benches import payloads, result
from scripts.benches.messages import INDEX
from scripts.benches.options import Options
from scripts.benches.payloads import Payloads
from scripts.benches.result import Figure, Result
from scripts.benches.row_udf import spark_rates
from scripts.benches.targets import BAD
from scripts.local.errors import LocalError
from spark_app.lake.files.local import LocalStorage
from spark_app.model.catalog import Catalog, DecodeOptions
from spark_app.model.record_schemas import SOURCE_SCHEMA
from spark_app.model.table_names import TableNames
from spark_app.protobuf.decode import Decoder, decoder_for
from spark_app.protobuf.decode.columns import ColumnBuilder
from spark_app.protobuf.decode.google_parser import GoogleParser
from spark_app.tables.route import Routing
from spark_app.units.spark import jvm
from spark_app.units.worker import task
from spark_app.units.worker.task_plan import TaskPlan

SHARES = (0.0, 0.01, 0.5, 1.0)
KINDS = ("flat", "rich")
BATCH = 10_000  # rows that Spark passes to a Python worker at once
WRONG = 65
Decode = Callable[[pa.Array], int]  # payloads to the number of rows


def run(options: Options) -> Result:
    """Measure and print."""
    measured = {}
    try:
        for kind in KINDS:
            measured[kind] = _measure(kind, options)
    finally:
        jvm.end(clean=True)
    print(f"medians of {options.rounds} rounds of {options.records:,} payloads")
    figures = [figure for kind, rates in measured.items() for figure in _figures(kind, rates)]
    return Result(figures, {"records": options.records, "rates": measured})


def _measure(kind: str, options: Options) -> dict[str, Any]:
    """Records per second: of the decoders, of the complete task, in Spark."""
    result.log_progress(f"{kind}: making {options.records:,} payloads ...")
    made = payloads.make(kind, options.records)
    rates = _rates(made, options.rounds)
    _show(kind, rates)
    clean, bad = _pass_rates(made, options.rounds)
    return {"decoders": rates, "pass": {"clean": clean, "bad": bad}, "spark": spark_rates(made, options.rounds)}


def _figures(kind: str, rates: dict[str, Any]) -> Iterator[Figure]:
    for decoder, of_shares in rates["decoders"].items():
        yield Figure.of(f"rows/s of {kind} events, {decoder}, none bad", of_shares["0%"])
    whole, spark = rates["pass"], rates["spark"]
    refused = map(truediv, whole["bad"], whole["clean"])
    yield Figure.of(f"records/s of the whole pass, {kind} events, clean", whole["clean"])
    yield Figure.of(f"records/s of the whole pass, {kind} events, all bad / clean", refused, BAD)
    ratios = map(truediv, spark["mapInArrow"], spark["row UDF"])
    yield Figure.of(f"rows/s in Spark, {kind} events, mapInArrow / row UDF", ratios)


def _decoders(made: Payloads) -> dict[str, Decode]:
    strict = decoder_for(made.decodable, INDEX)
    trusting = decoder_for(made.decodable, INDEX, DecodeOptions(strict=False))
    assert strict is not None
    assert trusting is not None
    return {
        "strict": lambda batch: len(strict.decode(batch).table),
        "not strict": lambda batch: len(trusting.decode(batch).table),
        "fallback": _fallback(strict),
        "loop": _loop(strict),
    }


def _fallback(decoder: Decoder) -> Decode:
    """The fallback's column builder for every row."""
    parser, builder = GoogleParser(decoder.message), ColumnBuilder(decoder.message)
    return lambda batch: len(builder.build(parser.parse(batch)[0])[0])


def _loop(decoder: Decoder) -> Decode:
    """The code that users write first. It supports no time zones, unsigned numbers and enum names."""
    parse = GoogleParser(decoder.message).message_class.FromString

    def decode(batch: pa.Array) -> int:
        rows = []
        for payload in batch.to_pylist():
            try:
                rows.append(_as_dict(parse(payload)))
            except DecodeError:
                continue
        return len(pa.Table.from_pylist(rows)) if rows else 0

    return decode


def _as_dict(message: Any) -> dict[str, Any]:
    row = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            row[field.name] = list(value) if field.is_repeated else value
        elif field.message_type.GetOptions().map_entry:
            row[field.name] = dict(value)
        else:
            row[field.name] = [_as_dict(one) for one in value] if field.is_repeated else _as_dict(value)
    return row


def _rates(made: Payloads, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Decoder -> share of bad payloads -> rows per second of each round."""
    decoders = _decoders(made)
    arrays = {share: list(_batches(made.array(share))) for share in SHARES}
    seconds: dict[tuple[str, float], list[float]] = {}
    for number in range(1 + rounds):
        for share, batches in arrays.items():
            rows = {}
            for name, decode in decoders.items():
                began = time.perf_counter()
                rows[name] = sum(map(decode, batches))
                if number:  # the first round warms up
                    seconds.setdefault((name, share), []).append(time.perf_counter() - began)
            if len(set(rows.values())) > 1:
                raise LocalError(f"the decoders disagree on how many rows there are: {rows}", WRONG)
        result.log_progress(f"round {number} of {rounds}")
    count = len(made.good)
    return {name: {f"{s:.0%}": [count / one for one in seconds[name, s]] for s in SHARES} for name in decoders}


def _batches(array: pa.Array) -> Iterator[pa.Array]:
    for first in range(0, len(array), BATCH):
        yield array.slice(first, BATCH)


def _show(name: str, rates: dict[str, dict[str, list[float]]]) -> None:
    headers = [f"{name}, rows/s", *(f"{share} bad" for share in next(iter(rates.values()))), "x loop, 0% bad"]
    typical = {decoder: {share: median(found) for share, found in of.items()} for decoder, of in rates.items()}
    loop = typical["loop"]["0%"]
    result.show(headers, [[d, *map(round, r.values()), f"{r['0%'] / loop:.1f}"] for d, r in typical.items()])


def _pass_rates(made: Payloads, rounds: int) -> tuple[list[float], list[float]]:
    """Records per second of the complete task in each round, from frames to files: (clean, only bad)."""
    header = SchemaId("PROTOBUF", schema_id=1, message_indexes=list(INDEX)).id_to_bytes()
    decoder = decoder_for(made.decodable, INDEX)
    assert decoder is not None
    catalog = Catalog({1: made.decodable}, {}, frozenset(), {decoder.full_name: decoder.schema})
    sides = [_records([header + payload for payload in part]) for part in (made.good, made.bad)]
    seconds: list[list[float]] = [[], []]
    for number in range(1 + rounds):
        for side, table in enumerate(sides):
            began = time.perf_counter()
            placed = _pass(table, catalog)
            if number:
                seconds[side].append(time.perf_counter() - began)
            if placed != (len(made.good), 0)[:: 1 - 2 * side]:
                raise LocalError(f"the pass made {placed} rows and rejects", WRONG)
    clean, bad = ([len(made.good) / one for one in times] for times in seconds)
    return clean, bad


def _pass(records: pa.Table, catalog: Catalog) -> tuple[int, int]:
    """(rows in silver, rows in quarantine)."""
    folder = Path(tempfile.mkdtemp(prefix="protolake-bench-", dir=os.environ.get("TMPDIR")))
    games = {f"game_{n}": f"game_{n}" for n in range(7)}
    messages = {name: tuple(catalog.columns) for name in games}
    routing = Routing("game_name", games, frozenset(), room=False, messages=messages)
    plan = TaskPlan(LocalStorage(folder), "part-0-a", TableNames(), routing, {}, 1, defer_new=True)
    try:
        report = task.run(iter(records.to_batches(BATCH)), plan, catalog, "0")
    finally:
        shutil.rmtree(folder)
    return sum(report.silver.values()), sum(report.quarantine.values())


def _records(values: list[bytes]) -> pa.Table:
    count = len(values)
    columns = {"value": values, "topic": ["bench"] * count, "offset": range(count), "timestamp": range(count)}
    columns |= {"partition": [0] * count, "timestamp_type": [0] * count}
    return pa.Table.from_arrays(
        [pa.array(columns.get(f.name, [None] * count), f.type) for f in SOURCE_SCHEMA], schema=SOURCE_SCHEMA
    )
