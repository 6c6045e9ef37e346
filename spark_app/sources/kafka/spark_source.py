"""Spark's Kafka source, used only to plan the offsets of micro-batches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_app.model.errors import ConfigurationError
from spark_app.model.offsets import Offsets
from spark_app.settings import config
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.sources.kafka import broker_access

JVM_ANSWER_S = 30
# Full names, because other libraries, Spark's broadcasts and Java itself also have a TimeoutException.
UNANSWERED = re.compile(
    r"org\.apache\.kafka\.[\w.]*\b(Timeout|Kafka|UnknownTopicOrPartition|Disconnect)Exception"
    r"|Failed to (construct kafka|create new Kafka)"  # Kafka's text if it finds no broker or gets no token
)
LOGIN = "org.apache.kafka.common.security"
# The login modules; every other mechanism is SCRAM.
MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
REFUSED = re.compile(r"org\.apache\.kafka\.[\w.]*\b(\w*(?:Authorization|Authentication)Exception)([^\n]{0,300})")


def is_unanswered(text: str) -> bool:
    """Whether the text of a Spark error means that a broker does not respond."""
    return UNANSWERED.search(text) is not None


def refusal(text: str) -> str | None:
    """The reason for which access is denied, with the settings to check; None if a Spark error's text has none."""
    found = REFUSED.search(text)
    if not found:
        return None
    said = broker_access.safe_excerpt(found[2]) if found[1].startswith("Sasl") else found[2].removeprefix(": ")
    return (
        f"{': '.join(filter(None, (found[1], said)))}: check the user's ACLs (Read on topic, groups), and kafka.sasl_*"
    )


def stream(
    session: SparkSession,
    settings: Settings,
    partitions: Mapping[str, Iterable[str]],
    start: Offsets | None,
    records: int,
) -> DataFrame:
    """The topics as a stream that plans the offsets of batches; no code reads values from it.

    Args:
        partitions: topic -> those of the lake, if the settings choose some; Spark finds all others by itself.
        start: offsets of the first batch if there is no checkpoint; None = `kafka.starting_offsets`.
        records: the most records per batch.
    """
    reader = session.readStream.format("kafka").options(**jvm_options(settings.kafka))
    assigned = {name: numbers for name, some in partitions.items() if (numbers := sorted(map(int, some)))}
    topics = (
        {"assign": json.dumps(assigned)}
        if settings.kafka.partitions
        else {"subscribe": ",".join(settings.kafka.topics)}
    )
    return (
        reader.options(**topics)
        .option("startingOffsets", json.dumps(start) if start else settings.kafka.starting_offsets)
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", str(records))
        .option("fetchOffset.numRetries", "1")
        .load()
    )


def jvm_options(kafka: KafkaSettings) -> dict[str, str]:
    """The options of Spark's Kafka source, from the settings.

    Raises:
        ConfigurationError: a secret file cannot be read, or the password has more than one line.
    """
    options = {
        "bootstrap.servers": kafka.brokers,
        "security.protocol": kafka.security_protocol,
        "isolation.level": "read_committed",
        "default.api.timeout.ms": str(JVM_ANSWER_S * 1000),
    }
    if kafka.security_protocol.startswith("SASL"):
        options |= {"sasl.mechanism": kafka.sasl_mechanism, "sasl.jaas.config": _jaas(kafka)}
    if kafka.uses_oauth:
        options |= {
            "sasl.login.callback.handler.class": f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": kafka.oauth_token_url,
            "sasl.login.connect.timeout.ms": str(JVM_ANSWER_S * 1000),  # the default is no timeout
            "sasl.login.read.timeout.ms": str(JVM_ANSWER_S * 1000),
        }
    if kafka.ca_file:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": kafka.ca_file}
    if kafka.certificate_file:
        chain = config.read_secret(kafka.certificate_file, "kafka.certificate_file")
        key = config.read_secret(kafka.key_file, "kafka.key_file")
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return {f"kafka.{key}": value for key, value in options.items()}


def _jaas(kafka: KafkaSettings) -> str:
    module = MODULES.get(kafka.sasl_mechanism, "scram.ScramLoginModule")
    password = config.read_secret(kafka.sasl_password_file, "kafka.sasl_password_file")
    login = {"username": kafka.sasl_username, "password": password}
    if kafka.uses_oauth:
        login = {"clientId": kafka.sasl_username, "clientSecret": password} | _oauth_options(kafka)
    return f"{LOGIN}.{module} required {' '.join(f'{key}={_quoted(value)}' for key, value in login.items())};"


def _oauth_options(kafka: KafkaSettings) -> dict[str, str]:
    options = {"scope": kafka.oauth_scope} if kafka.oauth_scope else {}
    for extension in filter(None, kafka.oauth_extensions.split(",")):
        name, _, value = extension.partition("=")
        options[f"extension_{name}"] = value
    if kafka.oauth_ca_file:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": kafka.oauth_ca_file}
    return options


def _quoted(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ConfigurationError("kafka.sasl_password_file: the password has more than one line")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
