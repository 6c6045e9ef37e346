"""All settings with their defaults (those of the demo), one frozen model per section.

`config` reads them. `docs/settings.toml` is generated from the docstrings and descriptions of the sections.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from spark_app.model import wrapper
from spark_app.model.address import ADDRESS, UNTESTED, StorageAddress
from spark_app.model.definitions import MAX_EXPECTATIONS
from spark_app.model.gold_functions import WINDOW_COLUMNS
from spark_app.model.schema_changes import Kind, Policy, suited
from spark_app.model.table_names import GOLD, TableNames
from spark_app.model.text import near
from spark_app.model.views import Views
from spark_app.settings.connections import KafkaSettings, RegistrySettings, Section
from spark_app.settings.gold import PATTERN, Gold, meeting
from spark_app.settings.renamed import in_environment
from spark_app.settings.serving import NO_USER, SERVE, SERVE_SILVER, Serve, User, UserName
from spark_app.settings.silver import Reference, ReferenceName, Silver, folded, joined_names
from spark_app.settings.sinks import SinkName, SinkSettings
from spark_app.settings.spark_cluster import SparkSettings
from spark_app.settings.storing import LakeSettings, Store
from spark_app.settings.watching import Alerts, Page


class Followers(Section):
    """This section sets how much is kept for followers of the units, such as gold and the events, that are behind."""

    max_bytes: PositiveInt = Field(
        4 << 30, description="bytes of manifests that are kept for each follower that is behind; see docs/events.md"
    )


class Events(Section):
    """This section sets how often events are written to the table of events, and how long it keeps them."""

    interval_s: PositiveFloat = Field(10.0, description="seconds between two files of the table")
    keep_days: PositiveFloat = Field(30.0, description="days after which events are removed")


def _check_policies(changes: dict[Kind, Policy]) -> dict[Kind, Policy]:
    for kind, policy in changes.items():
        if suited(kind, policy) != policy:
            raise ValueError(f"{kind} = {policy}: alias is for a rename, and new_column for a change of name or type")
    return changes


Changes = Annotated[dict[Kind, Policy], AfterValidator(_check_policies)]


class Source(Section):
    """This section sets where records come from: the topics of [kafka], or the files of a folder."""

    kind: Literal["kafka", "files"] = Field("kafka", description="kafka = topics; files = each new file of a folder")
    path: str = Field("", description="with files: the folder, or s3://bucket/prefix")
    name: str = Field(
        "files",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="with files: name that the tables show as topic; never changes",
    )
    format: Literal["auto", "parquet", "json", "delta"] = Field(
        "auto", description="auto = delta if the folder is a Delta table, else by the ending of each file's name"
    )
    value: str = Field("value", min_length=1, description="column of the framed bytes; text is base64")
    key: str = Field("key", description="column of the key; text is base64")
    headers: str = Field("headers", description="column of the headers, in one of the forms of docs/files.md")
    timestamp: str = Field("timestamp", description="column of the record's time; integers are milliseconds since 1970")
    follow_links: bool = Field(
        False, description="whether links are followed: who writes to the folder can then have any file ingested"
    )
    settle_s: NonNegativeFloat = Field(2.0, description="seconds that a file must stay unchanged before it is ingested")
    full_list_s: PositiveFloat = Field(
        300.0, description="seconds between lists of the whole folder, which find late names and replaced files"
    )
    late_keys: PositiveInt = Field(
        1000, description="so many of the last names, in the order of names, are looked at again in each list"
    )

    @model_validator(mode="after")
    def _names_a_folder(self) -> Source:
        if self.kind == "files" and not self.path:
            raise ValueError('kind = "files" needs path, the folder of the files')
        return self


class Decode(Section):
    """This section sets how frames, keys and payloads are decoded."""

    strict: bool = Field(
        True, description="Google's parser checks each record; false = only where the fast decoder refuses one"
    )
    defaults: bool = Field(
        True, description="a scalar without presence that is absent lands as its default; false = as NULL"
    )
    message_index: Literal["", "registered", "descriptor", "without_map_entries"] = Field(
        "",
        description="whether map entries count in a message index, see docs/decoding.md; empty = as the lake has it: "
        "registered, or descriptor in one of an earlier release",
    )
    other_wire_types: Literal["warn", "quarantine"] = Field(
        "warn",
        description="records with a field of another wire type than in the schema, such as a group: warn = its column "
        "is empty, and the first one of a schema is named",
    )
    unframed_schema_id: int = Field(
        0, ge=0, lt=2**31, description="schema of records without a frame; 0 = such records go to quarantine"
    )
    unframed_message: str = Field("", description="full name of their message; empty = the first of the schema")
    framed_keys: bool = Field(False, description="record keys are framed Protobuf too: decode them to JSON in _key")

    @model_validator(mode="after")
    def _names_a_schema(self) -> Decode:
        if self.unframed_message and not self.unframed_schema_id:
            raise ValueError("unframed_message is of no use without unframed_schema_id")
        return self


class Wrapper(Section):
    """This section sets the fields of a wrapper, which carries the event as bytes; the event may have any schema."""

    payload: str = Field("", description="field with the event, framed or bare; empty = the message is the event")
    schema_id: str = Field("", description="field with the event's schema id; empty = every payload has a frame")

    @model_validator(mode="after")
    def _names_a_payload(self) -> Wrapper:
        if self.schema_id and not self.payload:
            raise ValueError("schema_id is of no use without payload")
        return self

    @property
    def names(self) -> wrapper.Wrapper | None:
        """The wrapper's fields; None = the records' messages are the events."""
        return wrapper.Wrapper(self.payload, self.schema_id) if self.payload else None


PREFIX = "PROTOLAKE_"
ExpectationName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class Event(Section):
    """This section sets which fields of a message are its routing value, its key and its time."""

    routing: str = Field("game_name", description="field whose value names the table")
    key: str = Field("gamer_id", description="field that gold groups by")
    time: str = Field("event_timestamp", description="field that aggregates without a field of their own use")
    route_by: Literal["field", "message", "both"] = Field(
        "field", description="what names the table: the routing field, the message type, or both"
    )

    @field_validator("routing", "key")
    @classmethod
    def _be_a_column(cls, name: str) -> str:
        if "." in name:
            raise ValueError(f"{name} is a field inside another: only a field of the message itself can be one")
        return name


def _makes(shape: str, name: str) -> bool:
    """Whether the pattern can give this name for some routing value."""
    before, after = shape.split("{name}")
    return name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)


class Tables(Section):
    """This section sets the names of the tables, and which routing values get one."""

    bronze: str = Field("bronze_events", pattern=r"^[a-z0-9_]+$", description="every record as Kafka has it")
    silver: str = Field(
        "silver_{name}_events", pattern=PATTERN, description="decoded records, a table per routing value"
    )
    gold: str = Field(
        "gold_{name}_player_agg",
        pattern=PATTERN,
        description="aggregates, one gold table per silver table",
    )
    quarantine: str = Field(
        "quarantine_events", pattern=r"^[a-z0-9_]+$", description="records that cannot be in silver, with the cause"
    )
    deferred: str = Field(
        "deferred_events",
        pattern=r"^[a-z0-9_]+$",
        description="records that wait for their schema, or because their table is paused",
    )
    resolved: str = Field(
        "resolved_events", pattern=r"^[a-z0-9_]+$", description="quarantined records that a replay added to silver"
    )
    lost: str = Field(
        "lost_events",
        pattern=r"^[a-z0-9_]+$",
        description="offsets that Kafka deleted unread, and that a person accepted as lost",
    )
    dropped: str = Field(
        "dropped_events",
        pattern=r"^[a-z0-9_]+$",
        description="coordinates of the records that an expectation with the action drop keeps out of silver",
    )
    events: str = Field(
        "pipeline_events", pattern=r"^[a-z0-9_]+$", description="what the app has done and met, see docs/events.md"
    )
    max_tables: PositiveInt = Field(1000, description="most silver tables; further routing values go to quarantine")
    allowlist: tuple[str, ...] = Field(
        (), description="routing values that may become tables; empty = any valid name; existing tables go on"
    )
    sql: tuple[str, ...] = Field(
        (), description="files of tables by SQL, such as sql/*.sql, from where the app starts; see docs/sql-tables.md"
    )
    sql_interval_s: PositiveFloat = Field(60.0, description="seconds between runs of a table by SQL that names none")
    sql_timeout_s: PositiveFloat = Field(600.0, description="seconds after which a run of a table by SQL is ended")

    @property
    def fixed(self) -> tuple[str, ...]:
        """The names that no routing value is in."""
        own = self.bronze, self.quarantine, self.deferred, self.resolved, self.lost, self.dropped, self.events
        return *own, "sink_calls", "sink_rejects"

    @model_validator(mode="after")
    def _no_table_twice(self) -> Tables:
        fixed = self.fixed
        shapes = [self.silver, self.gold]
        if len({*fixed, *shapes}) < len(fixed) + 2 or any(_makes(shape, name) for shape in shapes for name in fixed):
            raise ValueError(
                "two of bronze, silver, gold, quarantine, deferred, resolved, lost, dropped and events could be the "
                "same table"
            )
        if _makes(self.silver, self.gold.format(name="x")) or _makes(self.gold, self.silver.format(name="x")):
            raise ValueError("a silver and a gold table could have the same name")
        return self


class ExpectationSettings(Section):
    """An expectation of the rows of silver, as SQL over the columns of the row; NULL is a failure."""

    check: str = Field(description="SQL expression that is true for a good row, such as bet > 0")
    action: Literal["warn", "drop", "quarantine", "pause"] = Field(
        description="what becomes of a row that fails: it lands and is counted, lands nowhere, is quarantined, or "
        "pauses its table"
    )
    tables: tuple[str, ...] = Field((), description="routing names of the tables it applies to; empty = all")
    description: str = Field("", description="the purpose of the expectation")


class Schemas(Section):
    """This section sets what the app does with a new schema id, and the limits on a schema."""

    on_bump: Literal["restart", "in-place"] = Field(
        "restart", description="how a new schema id adds its columns: by an exit with 75 and a restart, or in place"
    )
    proto_rules: Literal["off", "warn", "drop", "quarantine", "pause"] = Field(
        "off",
        description="what becomes of a row that fails a rule of protovalidate in its schema; off = none is checked",
    )
    changes: Changes = Field({}, description="kind of change -> policy, instead of its default in docs/decoding.md")
    unknown_id_grace_s: PositiveFloat = Field(
        600.0, description="seconds that records wait for a schema id unknown to the registry, before quarantine"
    )
    resolve_timeout_s: PositiveFloat = Field(
        5.0, description="seconds that a batch waits for its new schemas; after that their records are deferred"
    )
    max_unknown_ids_per_batch: PositiveInt = Field(16, description="most unknown ids that a batch looks up")
    max_compile_cpu_s: PositiveFloat = Field(
        5.0, description="CPU seconds that protoc may take for one schema; elapsed time may be three times as long"
    )
    max_compile_bytes: PositiveInt = Field(512 << 20, description="bytes of memory that protoc may take for one schema")
    max_text_bytes: PositiveInt = Field(1 << 20, description="bytes of the largest schema, references included")
    max_files: PositiveInt = Field(100, description="most files of one schema, references included")
    max_messages: PositiveInt = Field(1000, description="most messages of one schema's own file")
    max_columns: PositiveInt = Field(2000, description="most columns of one message, nested ones included")
    max_total_columns: PositiveInt = Field(20_000, description="most columns of all messages of one schema together")


class Batch(Section):
    """This section sets how often a micro-batch runs, and how much it and its workers process at once."""

    interval_s: float = Field(1.0, ge=0, description="seconds between micro-batches; 0 = back to back")
    max_records: PositiveInt = Field(200_000, description="most records of a micro-batch")
    max_bytes: PositiveInt = Field(
        256 << 20, description="most bytes of record values in a micro-batch, estimated from their mean size"
    )
    max_record_bytes: int = Field(
        64 << 20,
        gt=0,
        le=1 << 30,
        description="bytes of the largest value that is kept; of a larger one size and SHA-256 (cause record_size)",
    )
    max_arrow_records: PositiveInt = Field(50_000, description="most records that a worker decodes at once")
    max_arrow_bytes: PositiveInt = Field(
        16 << 20, description="most bytes that a worker decodes at once; a larger record has files of its own"
    )
    buffer_bytes: PositiveInt = Field(256 << 20, description="decoded bytes a worker keeps before it writes files")
    single_task_below: PositiveInt = Field(
        20_000, description="a smaller batch is read by one task, which writes one file per table"
    )
    max_attempts: PositiveInt = Field(
        3, description="failed attempts at a batch before it is written to bronze alone, and deferred"
    )


class Run(Section):
    """This section sets how long the app waits, when it holds, and what it logs."""

    connect_timeout_s: PositiveFloat = Field(
        600.0, description="seconds to wait for the broker or the registry before the app exits with 69"
    )
    stall_s: float = Field(900.0, ge=20, description="seconds without any progress before the app exits with 69")
    backoff_s: float = Field(
        5.0,
        ge=0,
        description="seconds before a start that follows three which committed nothing; doubled each time",
    )
    hold: bool = Field(False, description="stay up, unhealthy, where a restart cannot help (for containers)")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="lowest level of log lines that are printed"
    )


class Settings(BaseSettings):
    """All settings; `config.load` reads them."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    source: Source = Source()
    registry: RegistrySettings = RegistrySettings()
    event: Event = Event()
    decode: Decode = Decode()
    wrapper: Wrapper = Wrapper()
    tables: Tables = Tables()
    schemas: Schemas = Schemas()
    batch: Batch = Batch()
    expectations: dict[ExpectationName, ExpectationSettings] = {}
    silver: Silver = Silver()
    reference: dict[ReferenceName, Reference] = {}
    gold: Gold = Gold()
    sinks: dict[SinkName, SinkSettings] = {}
    serve: Serve = Serve()
    users: dict[UserName, User] = {}
    followers: Followers = Followers()
    events: Events = Events()
    lake: LakeSettings = LakeSettings()
    store: Store = Store()
    spark: SparkSettings = SparkSettings()
    page: Page = Page()
    alerts: Alerts = Alerts()
    run: Run = Run()

    @field_validator("expectations")
    @classmethod
    def _fit_into_a_mask(cls, expectations: dict[str, ExpectationSettings]) -> dict[str, ExpectationSettings]:
        """Refuse more expectations for a table than the bits in which a task notes the failed ones."""
        every = sum(not one.tables for one in expectations.values())
        for table in sorted({table for one in expectations.values() for table in one.tables}) or [""]:
            count = every + sum(table in one.tables for one in expectations.values())
            if count > MAX_EXPECTATIONS:
                which = f"the table {table}" if table else "each table"
                raise ValueError(
                    f"{count} expectations apply to {which}, at most {MAX_EXPECTATIONS} may: join checks with AND"
                )
        return expectations

    @model_validator(mode="after")
    def _keep_the_routing_field(self) -> Settings:
        """The table of a row is what its routing field says."""
        routing = self.event.routing.casefold() if self.event.route_by != "message" else ""
        for setting, own in self.silver.parts():
            for part, names in (("columns", own.columns), ("drop", own.drop)):
                if routing in {name.casefold() for name in names}:
                    raise ValueError(f"{setting}.{part}: {self.event.routing} names the table, and stays as it is")
        for name, own_reference in self.reference.items():
            if routing in folded(own_reference.names):
                raise ValueError(f"reference.{name}: {self.event.routing} names the table, and stays as it is")
        return self

    @model_validator(mode="after")
    def _tell_gold_tables_apart(self) -> Settings:
        patterns = self.gold.patterns(self.tables.gold)
        for one, other in meeting(patterns | {"silver": self.tables.silver}):
            if other in self.gold.tables or one in self.gold.tables:
                name, rest = (other, one) if other in self.gold.tables else (one, other)
                raise ValueError(f"gold.tables.{name} and {rest} could make the same table: set another `table`")
        for name in self.gold.tables:
            for table in self.tables.fixed:
                if _makes(patterns[name], table):
                    raise ValueError(f"gold.tables.{name} could make the table {table}: set another `table`")
        return self

    @model_validator(mode="after")
    def _know_the_gold_of_sinks(self) -> Settings:
        for name in {*self.sinks} & {SERVE, SERVE_SILVER}:
            raise ValueError(f"sinks.{name}: this name is that of a sink of [serve]: take another one")
        for name, sink in self.sinks.items():
            first, _, kind = sink.source.partition(".")
            if first == "gold" and kind and kind not in self.gold.tables:
                raise ValueError(f"sinks.{name}.from: there is no gold.tables.{kind}; {near(kind, self.gold.tables)}")
        return self

    @model_validator(mode="after")
    def _check_addresses(self) -> Settings:
        addresses = {"lake.path": self.lake_address, "source.path": self.source_address}
        addresses |= {f"reference.{name}.path": StorageAddress(own.path) for name, own in self.reference.items()}
        for setting, address in addresses.items():
            if address.scheme in UNTESTED and not self.lake.untested:
                raise ValueError(
                    f"{setting}: {address.root} was never tested; set lake.untested = true to use it all the same"
                )
            if address.scheme and not ADDRESS.fullmatch(address.root):
                raise ValueError(
                    f"{setting}: {address.root} is neither a folder nor s3://bucket/prefix of letters, digits and any "
                    "of . _ - /"
                )
        return self

    @field_validator("reference")
    @classmethod
    def _give_each_column_once(cls, references: dict[str, Reference]) -> dict[str, Reference]:
        joined_names(references)
        return references

    @model_validator(mode="after")
    def _have_users_where_they_log_in(self) -> Settings:
        for name in filter(NO_USER.fullmatch, self.users):
            raise ValueError(f"users.{name}: PostgreSQL means something else by this name: take another one")
        for name, user in self.users.items():
            if user.password_file and not self.serve.dsn_file:
                raise ValueError(
                    f"users.{name}.password_file: it is for the PostgreSQL that serves: set serve.dsn_file"
                )
        return self

    @property
    def all_sinks(self) -> dict[str, SinkSettings]:
        """Those of [sinks] and of [serve]."""
        return self.sinks | self.serve.sinks

    @property
    def are_columns_changed(self) -> bool:
        """Whether a silver table may have other columns than its messages."""
        return bool(self.reference) or not self.silver.is_empty

    def touched(self, name: str) -> frozenset[str]:
        """The columns, casefolded, that rows of a silver table may have otherwise than they were sent."""
        return self.silver.touched(name) | joined_names(self.reference)

    @property
    def without_cluster(self) -> Settings:
        """The same on the cores of this machine: those of a cluster are the app's."""
        own = self.spark.model_copy(update={"master": SparkSettings().master, "auth_secret_file": ""})
        return self.model_copy(update={"spark": own}) if self.spark.on_cluster else self

    @property
    def layout(self) -> TableNames:
        """The names of the tables."""
        names, gold = self.tables, self.gold.patterns(self.tables.gold)
        return TableNames(
            names.bronze,
            names.silver,
            names.gold,
            names.quarantine,
            names.deferred,
            names.resolved,
            names.lost,
            names.dropped,
            names.events,
            tuple((name, pattern) for name, pattern in gold.items() if name != GOLD),
        )

    def gold_key(self, kind: str) -> tuple[str, ...]:
        """The columns that no two rows of a gold table of this kind have alike."""
        if kind == GOLD:
            return (self.event.key,)
        own = self.gold.tables[kind]
        return (*own.keys(self.event.key), *(WINDOW_COLUMNS[:2] if own.window else ()))

    def views(self, tables: Collection[str]) -> Views:
        """The views over the tables of a lake."""
        late_s = {kind: own.window.durations[3] for kind, own in self.gold.tables.items() if own.window}
        return Views(self.layout, late_s, tables)

    @property
    def lake_address(self) -> StorageAddress:
        """Where the lake is."""
        return StorageAddress(self.lake.path, *self._reached, self.store.local_path, self.store.lease_s)

    @property
    def source_address(self) -> StorageAddress:
        """Where the files of the source are."""
        return StorageAddress(self.source.path, *self._reached)

    @property
    def _reached(self) -> tuple[str, str, str]:
        return self.store.endpoint.rstrip("/"), self.store.region, self.store.credentials_file

    @property
    def topics(self) -> list[str]:
        """What the tables show as topics: those of Kafka, or the name of the file source."""
        return [self.source.name] if self.source.kind == "files" else self.kafka.topics

    @property
    def subject(self) -> str:
        return self.registry.subject or f"{self.topics[0]}-value"

    @property
    def subjects(self) -> list[str]:
        """Subjects whose versions are resolved before the first batch; the subject of the values is first."""
        keys = [self.registry.key_subject or f"{self.topics[0]}-key"] if self.decode.framed_keys else []
        return [self.subject, *keys]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        if isinstance(env_settings, EnvSettingsSource):
            env_settings.env_vars = in_environment(env_settings.env_vars, PREFIX)[0]
        return env_settings, init_settings  # the environment overrides the file
