"""Settings of the sinks: which rows leave the lake, to whom, and how."""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    field_validator,
    model_validator,
)

from spark_app.settings.connections import Section, without_secrets

NAMES = re.compile("[a-z][a-z0-9_]{0,63}")
SinkName = Annotated[str, StringConstraints(pattern=f"^{NAMES.pattern}$")]
EVERY = "*"  # as `from`: gold, and every table by SQL
NAME, TABLE = "name", "table"  # in an address, or the name of a table: the routing name, and that in the lake
MOST_OF_KAFKA = 100  # calls that wait for their turn


class Auth(Section):
    """How a REST sink shows who it is: secrets are in files, which are read anew for a new token or connection."""

    bearer_file: str = Field("", description="file with a bearer token")
    username: str = Field("", description="user name, for Basic")
    password_file: str = Field("", description="file with the password, for Basic")
    token_url: str = Field("", description="address that gives tokens for client credentials, OAuth 2")
    client_id: str = Field("", description="client, OAuth 2")
    client_secret_file: str = Field("", description="file with the secret of the client, OAuth 2")
    scope: str = Field("", description="scope of the tokens, OAuth 2")
    ca_file: str = Field("", description="PEM file of the certificate authority; empty = the system's")
    cert_file: str = Field("", description="PEM file with a certificate of our own, for mutual TLS")
    key_file: str = Field("", description="PEM file with its key")

    @model_validator(mode="after")
    def _is_one_way(self) -> Auth:
        ways = [bool(self.bearer_file), bool(self.username), bool(self.token_url)]
        if sum(ways) > 1:
            raise ValueError("bearer_file, username and token_url are three ways: set one")
        if bool(self.username) != bool(self.password_file):
            raise ValueError("username and password_file belong together")
        if bool(self.token_url) != bool(self.client_id and self.client_secret_file):
            raise ValueError("token_url, client_id and client_secret_file belong together")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file is of no use without cert_file")
        return self


class Rest(Section):
    """Calls of an HTTP service."""

    url: str = Field(description="address; {name} is the routing name, {column} a value of a call of one row")
    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="method of the calls")
    headers: dict[str, str] = Field({}, description="further headers, without secrets")
    auth: Auth = Auth()
    body: Literal["array", "ndjson", "object"] = Field("array", description="JSON array, JSON lines, or one object")
    max_bytes: PositiveInt = Field(1 << 20, description="most bytes of a body; a call with more is divided")
    timeout_s: PositiveFloat = Field(30.0, description="seconds for a call")
    retry_on: tuple[int, ...] = Field((408, 425, 500), description="statuses after which a call is repeated")
    drop_on: tuple[int, ...] = Field((), description="statuses that count as done, such as 409")
    delete: str = Field("", description="address for rows that are gone, called with DELETE; empty = sent as rows")
    on_erase: str = Field("", description="address for a key that is erased, called with DELETE; {key} is the key")
    allow_private: bool = Field(False, description="the service may be in the machine's own network")

    @field_validator("url", "delete", "on_erase")
    @classmethod
    def _has_a_fixed_host(cls, value: str) -> str:
        if not value:
            return value
        try:
            parts = urlsplit(without_secrets(value, "auth"))
            list(Formatter().parse(value))
        except ValueError as error:
            raise ValueError(f"is no address: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and a host")
        if "{" in parts.netloc:
            raise ValueError("the host is fixed: columns may be in the path")
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n]", text):
                raise ValueError(f"{name!r} is no header")
            if name.casefold() in ("authorization", "proxy-authorization", "cookie"):
                raise ValueError(f"{name}: a secret belongs in a file, see auth")
        return value

    @property
    def needs_one_row(self) -> bool:
        """Whether no call can have several rows."""
        return self.body == "object" or bool(self.delete) or bool(set(names_in(self.url)) - {NAME})


class Postgres(Section):
    """Tables of PostgreSQL, which are made at first use."""

    model_config = ConfigDict(populate_by_name=True)

    dsn_file: str = Field(description="file with the connection string: postgresql://user:password@host/database")
    namespace: str = Field("public", alias="schema", min_length=1, description="schema of the tables, which exists")
    keep_days: NonNegativeInt = Field(
        0, description="days for which rows of silver are kept, by the day on which they landed; 0 = for ever"
    )
    table: str = Field("{table}", description="name of a table; {name} is the routing name, {table} that in the lake")
    timeout_s: PositiveFloat = Field(30.0, description="seconds for a connection, and for a statement")

    @field_validator("table")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(value) if name is not None}
        except ValueError as error:
            raise ValueError(f"is no pattern: {error}") from None
        if not value or names - {NAME, TABLE}:
            raise ValueError("is a name, in which {name} and {table} may be")
        return value


class KafkaTarget(Section):
    """Records of a topic: framed Protobuf, by transactions."""

    topic: str = Field(description="topic; {name} is the routing name")
    schema_: str = Field(
        "generate",
        alias="schema",
        min_length=1,
        description="generate = made of the table, registered as <topic>-value; or SUBJECT or SUBJECT:VERSION",
    )
    message: str = Field("", description="full name of the message, if the schema has several")
    key_column: str = Field("", description="column whose value is the key of a record; empty = records have no key")
    headers: bool = Field(True, description="whether a record has its call, table and coordinates as headers")
    partitioner: Literal[
        "random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"
    ] = Field("murmur2_random", description="how a key chooses a partition; the default is that of Java")
    brokers: str = Field("", description="bootstrap servers; empty = those of [kafka], whose login counts for both")
    registry_url: str = Field(
        "", description="schema registry; empty = that of [registry], whose login counts for both"
    )

    model_config = ConfigDict(populate_by_name=True)

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, value: str) -> str:
        try:
            wrong = set(names_in(value)) - {NAME}
        except ValueError as error:
            raise ValueError(f"is no topic: {error}") from None
        if wrong or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value.replace("{name}", "n")):
            raise ValueError("is no topic: it has letters, digits, . _ - and {name}")
        return value

    @field_validator("registry_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return without_secrets(value, "registry.username and registry.password_file, or registry.token_file")

    @property
    def subject(self) -> tuple[str, str]:
        """(subject, its version) of the schema; both empty if it is generated."""
        if self.schema_ == "generate":
            return "", ""
        subject, _, version = self.schema_.rpartition(":")
        return (subject, version) if subject and version.isdecimal() else (self.schema_, "latest")


def names_in(address: str) -> list[str]:
    """The names in braces."""
    return [name for _, name, _, _ in Formatter().parse(address) if name]


class SinkSettings(Section):
    """A sink: rows that leave the lake. Where they go says the section of its kind."""

    model_config = ConfigDict(populate_by_name=True)

    source: str = Field(
        "silver",
        alias="from",
        description="silver, gold, gold.NAME of the settings, a table by SQL, or * = all but silver",
    )
    tables: tuple[str, ...] = Field((), description="routing names of the tables; empty = all")
    where: str = Field("", description="SQL expression that is true for the rows to send, such as bet > 100")
    columns: tuple[str, ...] = Field((), description="columns to send; empty = all but those about the record")
    on: Literal["", "append", "change"] = Field(
        "",
        description="append = each new row of silver; change = the newest row of each changed key of any other table",
    )
    key: tuple[str, ...] = Field(
        (), description="columns that no two rows have alike; of gold known, of a table by SQL needed for change"
    )
    begin: Literal["new", "all"] = Field("new", description="whether a new sink sends what silver has already")
    order: Literal["none", "key", "table"] = Field(
        "none", description="what is sent one after another: nothing, the rows of a key, or those of a table"
    )
    rows_per_call: PositiveInt = Field(100, description="most rows of a call")
    max_wait_s: PositiveFloat = Field(1.0, description="seconds for which new rows are collected")
    in_flight: int = Field(16, ge=1, le=1024, description="calls at the same time")
    calls_per_s: NonNegativeFloat = Field(0.0, description="most calls in a second; 0 = as many as there are")
    attempts: PositiveInt = Field(8, description="answers that are no success until a call is given up")
    give_up: Literal["reject", "pause"] = Field(
        "reject", description="what follows: its rows go to sink_rejects, or the sink waits for a person"
    )
    rest: Rest | None = Field(None, description="{url, method, headers, auth, body, ...} of an HTTP service")
    postgres: Postgres | None = Field(None, description="{dsn_file, schema, table, timeout_s} of PostgreSQL")
    kafka: KafkaTarget | None = Field(None, description="{topic, schema, key_column, headers, ...} of Kafka records")
    kind: str = Field("", description="a kind that is not built in: its entry point of the group protolake.sinks")
    options: dict[str, Any] = Field({}, description="settings of such a kind")

    @model_validator(mode="after")
    def _has_a_source(self) -> SinkSettings:
        is_silver = self.source == "silver"
        if self.on and (self.on == "append") is not is_silver:
            raise ValueError("on: silver has append, and every other table has change: its rows change")
        if self.begin == "all" and not is_silver:
            raise ValueError('begin = "all" is for silver: of another table everything is sent at first')
        if self.source == EVERY and not (self.postgres or self.kind):
            raise ValueError('from = "*" is for kinds that keep tables apart, such as postgres')
        if self.source == EVERY and (self.key or self.where or self.columns):
            raise ValueError('from = "*" sends whole tables, so it has neither key nor where nor columns')
        if self.postgres and self.postgres.keep_days and not is_silver:
            raise ValueError("postgres.keep_days is for silver: rows of other tables change")
        if self.order == "key" and is_silver and not self.key:
            raise ValueError('order = "key" needs key, the columns of it')
        if sum(map(bool, (self.rest, self.kafka, self.postgres, self.kind))) != 1:
            raise ValueError("set exactly one of rest, kafka, postgres and kind: where its rows go")
        if self.kafka and self.in_flight > MOST_OF_KAFKA:
            raise ValueError(f"kafka: in_flight is at most {MOST_OF_KAFKA}: its calls are made one after another")
        if self.options and not self.kind:
            raise ValueError("options are of a kind that is not built in")
        if self.rest and self.rest.needs_one_row and self.rows_per_call > 1:
            raise ValueError("rest: an object as body, columns in url, or delete need rows_per_call = 1")
        return self

    @property
    def target(self) -> tuple[Any, ...]:
        """Where the rows go: another target gets all rows of tables that change."""
        rest, kafka, postgres = self.rest, self.kafka, self.postgres
        return (
            rest and rest.url,
            kafka and (kafka.brokers, kafka.topic, kafka.schema_),
            postgres and (postgres.dsn_file, postgres.namespace, postgres.table),
            (self.kind, sorted(self.options.items())),
        )

    @property
    def lanes(self) -> str:
        """What decides which rows wait for which."""
        return f"{self.order} {self.in_flight}"

    @property
    def is_append(self) -> bool:
        return self.source == "silver"
