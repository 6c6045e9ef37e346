"""Settings of the connections: the brokers and the schema registry.

A subject may name a schema context: `:.sales:orders-value` is the subject `orders-value` of the context `sales`. Each
context has its own ids, subjects and references: id 7 is one schema in the default context and another in `sales`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator, model_validator

QUALIFIED = re.compile(r"(:\.[^:]*:)(.*)", re.DOTALL)
DEFAULT = ":.:"


def context_of(subject: str) -> str:
    """The context of a subject, such as `:.sales:`; empty for the default context."""
    found = QUALIFIED.fullmatch(subject)
    return "" if found is None or found[1] == DEFAULT else found[1]


def name_in_context(subject: str) -> str:
    """The subject without its context."""
    found = QUALIFIED.fullmatch(subject)
    return subject if found is None else found[2]


def qualify(subject: str, context: str) -> str:
    """The full subject of a reference in a schema of this context: a subject without a context is of the same one."""
    return subject if QUALIFIED.fullmatch(subject) else context + subject


NO_TEXT = re.compile("[\0\ud800-\udfff]")
PARTITIONS = r"\d{1,9}(-(\d{1,9})?)?"
EXTENSION = r"""[A-Za-z]+=[^\s,"\\]+"""


class Section(BaseModel):
    """One section of the settings. Its docstring is its comment in `docs/settings.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="after")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        """Reject NUL and bytes that are not UTF-8: no file, topic or address can contain them."""
        if isinstance(value, str) and NO_TEXT.search(value):
            raise ValueError("is not text: it contains a NUL or what is not UTF-8")
        return value


class KafkaSettings(Section):
    """This section sets which topics the app reads, from which brokers, and how it logs in to them."""

    brokers: str = Field("127.0.0.1:9092", description="bootstrap servers, comma-separated")
    topic: str = Field("protobuf_game_stream", description="topic, or several, comma-separated")
    partitions: str = Field(
        "",
        pattern=rf"^({PARTITIONS}(,{PARTITIONS})*)?$",
        description="partitions of each topic that this lake ingests, such as 0-15 or 32- (no end); empty = all",
    )
    starting_offsets: Literal["earliest", "latest"] = Field("earliest", description="where a new lake begins to read")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="protocol of the brokers"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "PLAIN", description="login mechanism, with SASL"
    )
    sasl_username: str = Field("", description="user name, with SASL; the client id with OAUTHBEARER")
    sasl_password_file: str = Field("", description="file with the SASL password; the client secret with OAUTHBEARER")
    oauth_token_url: str = Field(
        "", description="with OAUTHBEARER: https:// address that gives tokens for the client id and its secret"
    )
    oauth_scope: str = Field("", description="with OAUTHBEARER: scope of the tokens, if the address wants one")
    oauth_extensions: str = Field(
        "",
        pattern=rf"^({EXTENSION}(,{EXTENSION})*)?$",
        description="with OAUTHBEARER: <name>=<value>, comma-separated; Confluent Cloud wants logicalCluster=...",
    )
    oauth_ca_file: str = Field(
        "", description="PEM file of the certificate authority of oauth_token_url; empty = the system's"
    )
    ca_file: str = Field("", description="PEM file of the certificate authority; empty = the system's")
    certificate_file: str = Field("", description="PEM file of the client certificate, for mutual TLS")
    key_file: str = Field("", description="PEM file of the client's private key (PKCS#8, not encrypted)")

    @property
    def topics(self) -> list[str]:
        return [topic.strip() for topic in self.topic.split(",")]

    def includes(self, partition: int) -> bool:
        """Whether a partition belongs to this lake."""
        return not self.partitions or any(first <= partition <= last for first, last in self._ranges)

    @property
    def _ranges(self) -> list[tuple[int, float]]:
        parts = (part.partition("-") for part in self.partitions.split(","))
        return [(int(first), float(last or "inf") if dash else int(first)) for first, dash, last in parts]

    @property
    def uses_oauth(self) -> bool:
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER"

    @field_validator("oauth_token_url")
    @classmethod
    def _url_is_safe(cls, value: str) -> str:
        """Require https, because the client secret is sent to this address; plain http only to the machine itself."""
        plain = value.startswith("http://") and is_loopback(_host(value))
        if value and not value.startswith("https://") and not plain:
            raise ValueError("must begin with https://")
        if re.search(r"[\s,\"\\]", value):
            raise ValueError("contains a space, comma, quote or backslash")
        return without_secrets(value, "kafka.sasl_username and kafka.sasl_password_file")

    @model_validator(mode="after")
    def _names_an_endpoint(self) -> KafkaSettings:
        if self.uses_oauth and not (self.oauth_token_url and self.sasl_username):
            raise ValueError("sasl_mechanism OAUTHBEARER needs oauth_token_url, and sasl_username (the client id)")
        return self

    @field_validator("partitions")
    @classmethod
    def _ascending(cls, value: str) -> str:
        for part in filter(None, value.split(",")):
            first, _, last = part.partition("-")
            if last and int(last) < int(first):
                raise ValueError(f"{part} ends before it begins")
        return value

    @field_validator("topic")
    @classmethod
    def _topic_names(cls, value: str) -> str:
        if not all(topic.strip() for topic in value.split(",")):
            raise ValueError("is empty")
        return value


class RegistrySettings(Section):
    """This section sets the schema registry, any server with Confluent's API, and how the app logs in to it."""

    url: str = Field("http://127.0.0.1:8081", description="base address, without user, password or query")
    subject: str = Field(
        "",
        description="subject of the values; empty = <topic>-value; `:.sales:orders-value` is one of a context",
    )
    key_subject: str = Field("", description="subject of the keys, with decode.framed_keys; empty = <topic>-key")
    username: str = Field("", description="user name for basic auth")
    password_file: str = Field("", description="file with the basic auth password")
    token_file: str = Field("", description="file with a bearer token, instead of username and password")
    ca_file: str = Field("", description="PEM file of the certificate authority; empty = the system's")
    certificate_file: str = Field("", description="PEM file of the client certificate, for mutual TLS")
    key_file: str = Field("", description="PEM file of the client's private key")
    timeout_s: PositiveFloat = Field(
        5.0,
        description="seconds that the registry may send nothing; a schema with its references may take two times that",
    )
    format: Literal["text", "serialized"] = Field(
        "text",
        description="form that is requested: .proto text, or compiled (not from Apicurio); both are always read",
    )

    @field_validator("url")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return without_secrets(value, "registry.username and registry.password_file, or registry.token_file").rstrip(
            "/"
        )

    @model_validator(mode="after")
    def _one_context(self) -> RegistrySettings:
        if self.key_subject and context_of(self.subject) != context_of(self.key_subject):
            raise ValueError("subject and key_subject are of two contexts, so that an id would have two meanings")
        return self

    @model_validator(mode="after")
    def _one_login(self) -> RegistrySettings:
        if self.username and self.token_file:
            raise ValueError("username and token_file are two logins: set one")
        return self

    @property
    def sends_secret_in_clear(self) -> bool:
        """Whether the password or token is sent unencrypted over a network."""
        return (
            bool(self.username or self.token_file)
            and self.url.startswith("http://")
            and not is_loopback(_host(self.url))
        )


def without_secrets(url: str, instead: str) -> str:
    """The address, if it contains no credentials: logs and commands print addresses."""
    if "@" in urlsplit(url).netloc:
        raise ValueError(f"contains a user or password: use {instead}")
    if "?" in url or "#" in url:
        raise ValueError(f"contains a query, which may be a secret: use {instead}")
    return url


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
