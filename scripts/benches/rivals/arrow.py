"""The careful way: mapInArrow with this project's decoder, and parallel appends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from scripts.benches.messages import INDEX
from scripts.benches.rivals import given, spark
from scripts.benches.topics import FRAME
from spark_app.protobuf.decode import decoder_for
from spark_app.units.spark import jvm

SIDE_BY_SIDE = 8
END = 1 << 30  # pyarrow 26 cannot slice without an end


def decode(records: DataFrame) -> DataFrame:
    """Decode one batch of payloads after the other."""
    decodable = given.newest()

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = decoder_for(decodable, INDEX)
        assert decoder is not None
        for batch in batches:
            decoded = decoder.decode(pc.binary_slice(batch.column("value"), FRAME, END))
            rows = np.full(len(batch), -1)
            rows[decoded.rows] = np.arange(len(decoded.rows))
            parts = decoded.table.to_struct_array().combine_chunks()
            messages = parts.take(pa.array(rows, mask=rows < 0))
            yield pa.RecordBatch.from_arrays([*batch.columns, messages], [*batch.schema.names, "message"])

    decoder = decoder_for(decodable, INDEX)
    assert decoder is not None
    message = StructField("message", from_arrow_schema(decoder.schema))
    return records.mapInArrow(convert, StructType([*records.schema.fields, message]))


def main(partitioned: bool) -> None:
    opened, settings, lake = spark.open_session("arrow")

    def process_batch(records: DataFrame, batch: int) -> None:
        records = records.persist()
        decoded = decode(records).persist()
        parts = spark.keep_together(decoded) if partitioned else spark.split(decoded, given.games())
        spark.append({"bronze": records, **parts}, lake, SIDE_BY_SIDE, batch)
        decoded.unpersist()
        records.unpersist()

    spark.each_batch(spark.read(opened, settings, settings.batch.max_records), lake, process_batch)
    spark.aggregate(opened, lake, SIDE_BY_SIDE)
    jvm.end(clean=False)


if __name__ == "__main__":
    main(partitioned=False)
