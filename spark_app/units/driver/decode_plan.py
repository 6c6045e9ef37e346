"""What the settings and the state of a lake say about decoding its records, for the plan of a task."""

from __future__ import annotations

import time

from spark_app.lake.files.storage import Storage
from spark_app.model.catalog import DecodeOptions
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.framing import UnframedSchema
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from spark_app.tables.route import Routing
from spark_app.units.worker.task_plan import TaskPlan


def make_plan(storage: Storage, prefix: str, settings: Settings, ledger: Ledger, routing: Routing) -> TaskPlan:
    """The plan for records of bronze, which no rule checks, and whose rows stay as they were sent.

    Args:
        storage: where the files go.
        prefix: begins the names of the files.

    Raises:
        ConfigurationError: the schema of records without a frame has no such message.
    """
    decode, batch = settings.decode, settings.batch
    return TaskPlan(
        storage=storage,
        prefix=prefix,
        layout=settings.layout,
        routing=routing,
        topic_ids={},
        landed_at=int(time.time() * 1_000_000),
        write_bronze=False,
        unframed=_unframed_schema(settings, ledger),
        framed_keys=decode.framed_keys,
        options=DecodeOptions(decode.strict, decode.defaults, decode.other_wire_types == "quarantine"),
        wrapper=settings.wrapper.names,
        hmac_key_file=settings.silver.hmac_key_path,
        buffer_bytes=batch.buffer_bytes,
        own_file_bytes=batch.max_arrow_bytes,
        max_record_bytes=batch.max_record_bytes,
        compression=settings.lake.compression,
        bronze_compression=settings.lake.compression_of_bronze,
    )


def _unframed_schema(settings: Settings, ledger: Ledger) -> UnframedSchema | None:
    """The schema of records without a frame."""
    decode = settings.decode
    schema_id = decode.unframed_schema_id
    if not schema_id:
        return None
    index = ledger.index_of(schema_id, decode.unframed_message)
    if not index and schema_id in ledger.catalog().decodable:
        raise ConfigurationError(
            f"decode.unframed_message: schema {schema_id} has no message {decode.unframed_message}"
        )
    return schema_id, index
