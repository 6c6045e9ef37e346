"""The plan of a task: what the driver gives to each task of a unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_app.lake.files.storage import Storage
from spark_app.model.catalog import DecodeOptions
from spark_app.model.definitions import NO_DEFINITIONS, Definitions
from spark_app.model.table_names import TableNames
from spark_app.model.wrapper import Wrapper
from spark_app.protobuf.decode.decoder import STRICT
from spark_app.protobuf.framing import UnframedSchema
from spark_app.tables.route import Routing


@dataclass(frozen=True)
class TaskPlan:
    """All that a task must know besides the catalog. It is small, because it travels with every task.

    Attributes:
        storage: where the files go.
        prefix: begins every file name: the unit's sequence number and a random part of this attempt.
        layout: names of the tables.
        routing: the tables that exist. A routing value that is not among them is reported.
        topic_ids: topic -> Kafka's id of it.
        landed_at: microseconds since 1970.
        write_bronze: False where the records come from bronze.
        land_only: decode nothing, defer every record.
        defer_new: True in the last run of a unit: records with a new schema id or routing value are deferred.
        unframed: the schema of records without a frame; None = such records are quarantined.
        framed_keys: decode record keys.
        options: how payloads are decoded.
        wrapper: the records' messages contain other messages; None = they are the events.
        definitions: the rules that rows must meet to land in silver, and the columns that they have there.
        keep_violated: rows have the column `VIOLATED`, also without definitions.
        hmac_key_file: the file with the key of `hmac()`; "" = no expression calls it.
        field_ids: the files have field ids, and columns without one are reported.
        paused: routing name of a paused table -> what its rows wait for.
        buffer_bytes: decoded bytes that a task keeps before it writes files.
        own_file_bytes: a record whose value is larger has files of its own.
        max_record_bytes: the source omits a value that is larger.
        compression: of the Parquet files of all tables but bronze.
        bronze_compression: of bronze's.
        gatherers: tasks that write the rows of small silver tables, which the others send them; 0 = each task writes
            all of its rows.
        local_state: folder of the driver's machine in which a test arms failpoints.
    """

    storage: Storage
    prefix: str
    layout: TableNames
    routing: Routing
    topic_ids: dict[str, str]
    landed_at: int
    write_bronze: bool = True
    land_only: bool = False
    defer_new: bool = False
    unframed: UnframedSchema | None = None
    framed_keys: bool = False
    options: DecodeOptions = STRICT
    wrapper: Wrapper | None = None
    definitions: Definitions = NO_DEFINITIONS
    keep_violated: bool = False
    hmac_key_file: str = ""
    field_ids: bool = False
    paused: Mapping[str, str] = field(default_factory=dict)
    buffer_bytes: int = 256 << 20
    own_file_bytes: int = 16 << 20
    max_record_bytes: int = 64 << 20
    compression: str = "zstd"
    bronze_compression: str = "zstd"
    gatherers: int = 0
    local_state: str = ""

    @property
    def are_judged(self) -> bool:
        """Whether messages are judged by the rules in their .proto."""
        return self.keep_violated or bool(self.definitions.by_origin)
