"""The way of 2022: Spark's copy to bronze; then, in batches of the same size, generated classes in a row UDF and a
filtered append for each game; at the end an aggregate query for each game.

It runs with Spark's default settings, or with the app's.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from grpc_tools import protoc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from scripts.benches import messages
from scripts.benches.rivals import given, spark
from scripts.benches.row_udf import to_row
from scripts.benches.topics import FRAME
from spark_app.protobuf.decode import arrow_schema
from spark_app.units.spark import jvm

MODULE = "bench_event_pb2"


def decode(records: DataFrame) -> DataFrame:
    """Decode one payload after the other."""
    kind = from_arrow_schema(arrow_schema(_event().DESCRIPTOR))
    return records.withColumn("message", F.udf(_parse, kind, useArrow=False)("value"))


def _parse(value: bytes) -> Any:
    try:
        return to_row(_event().FromString(value[FRAME:]))
    except DecodeError:
        return None


def _event() -> Any:
    return import_module(MODULE).Event


def generate(folder: Path) -> Path:
    """Generate the module of `protoc --python_out` for the newest version."""
    text = messages.schema_text(given.shape().message, given.shape().versions)
    (folder / "bench_event.proto").write_text(text)
    with as_file(files("grpc_tools") / "_proto") as well_known:
        code = protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", "bench_event.proto"])
    assert code == 0
    return folder / f"{MODULE}.py"


def main(folder: Path, tuned: bool, partitioned: bool) -> None:
    module = generate(folder)
    sys.path.append(str(folder))
    opened, settings, lake = spark.open_session("rows")
    if not tuned:
        opened = spark.untuned(opened)
    opened.sparkContext.addPyFile(str(module))

    def process_batch(bronze: DataFrame, batch: int) -> None:
        decoded = decode(bronze).persist()
        parts = spark.keep_together(decoded) if partitioned else spark.split(decoded, given.games())
        spark.append(parts, lake, 1, batch)
        decoded.unpersist()

    spark.copy(opened, settings, lake, given.copied(lake.root))
    files = given.shape().partitions  # of a batch of the copy
    stream = opened.readStream.format("delta").option("maxFilesPerTrigger", str(files))
    spark.each_batch(stream.load(str(lake.path("bronze"))), lake, process_batch)
    spark.aggregate(opened, lake, side_by_side=1)
    jvm.end(clean=False)


def run(tuned: bool, partitioned: bool = False) -> None:
    """Run to the end of this process."""
    with tempfile.TemporaryDirectory() as name:
        main(Path(name), tuned, partitioned)


if __name__ == "__main__":
    run(tuned=False)
