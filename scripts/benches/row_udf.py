"""Spark jobs over the same payloads: the usual row UDF with parsed messages, and mapInArrow with this decoder."""

import datetime
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from scripts.benches import result
from scripts.benches.messages import INDEX
from scripts.benches.payloads import Payloads
from scripts.benches.servers import app_settings, changed_environment
from spark_app.model.catalog import Decodable
from spark_app.model.log import LEVELS, log
from spark_app.protobuf.columns.types import is_map, ordered_fields
from spark_app.protobuf.decode import Decoder, decoder_for
from spark_app.protobuf.decode.google_parser import GoogleParser
from spark_app.settings import config
from spark_app.units.spark import session

FILES = 4
NOBODY = "127.0.0.1:9"


def spark_rates(made: Payloads, rounds: int) -> dict[str, list[float]]:
    """Rows per second of each round by mapInArrow and by a row UDF, into a sink that discards them."""
    log.level = LEVELS["WARNING"]
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
        folder = Path(name)
        for part in range(FILES):
            values = pa.table({"value": pa.array(made.good[part::FILES], pa.binary())})
            pq.write_table(values, folder / f"{part}.parquet")
        with changed_environment(app_settings(folder / "lake", NOBODY, f"http://{NOBODY}")):
            spark = session.start(config.load(), "bench", quiet=True)
        records = spark.read.parquet(*(str(folder / f"{part}.parquet") for part in range(FILES)))
        seconds = _measure(
            {"mapInArrow": by_arrow(records, made.decodable), "row UDF": by_row(records, made.decodable)}, rounds
        )
    return {side: [len(made.good) / one for one in times] for side, times in seconds.items()}


def _measure(sides: dict[str, DataFrame], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1 + rounds):
        for side, frame in sides.items():
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if number:  # the first round starts the workers
                seconds[side].append(time.perf_counter() - began)
        result.log_progress(f"Spark round {number} of {rounds}")
    return seconds


def by_arrow(records: DataFrame, decodable: Decodable) -> DataFrame:
    """Decode the payloads with this decoder, as the app does."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _decoder(decodable)
        for batch in batches:
            yield from decoder.decode(batch.column("value")).table.to_batches()

    return records.mapInArrow(decode, from_arrow_schema(_decoder(decodable).schema))


def by_row(records: DataFrame, decodable: Decodable) -> DataFrame:
    """Decode the payloads one by one: each is parsed and passed to Spark as a struct."""
    tools: list[Any] = []  # made on the worker, because a message class cannot be pickled

    def convert(payload: bytes) -> Any:
        if not tools:
            tools.append(GoogleParser(_decoder(decodable).message).message_class.FromString)
        return to_row(tools[0](payload))

    kind = from_arrow_schema(_decoder(decodable).schema)
    return records.select(F.udf(convert, kind, useArrow=False)("value").alias("message"))


def to_row(message: Any) -> tuple[Any, ...]:
    """A message as the tuple of Python values that Spark accepts for a struct."""
    return tuple([_value(message, field) for field in ordered_fields(message.DESCRIPTOR)])


def _value(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if is_map(field):
        return dict(value)
    if field.is_repeated:
        return list(value) if field.message_type is None else [to_row(one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return value.ToDatetime(datetime.UTC)
        return value.value if name.startswith("google.protobuf.") else to_row(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return Decimal(value) if field.type == FieldDescriptor.TYPE_UINT64 else value


def _decoder(decodable: Decodable) -> Decoder:
    decoder = decoder_for(decodable, INDEX)
    assert decoder is not None
    return decoder
