"""How librdkafka is told to reach the brokers: the same for whoever reads from them."""

from __future__ import annotations

import logging
from typing import Any

from spark_app import config
from spark_app.settings import KafkaSettings

ANSWER_S = 10.0  # that a broker may take for an answer


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """librdkafka's options, from ours; `kafka.source.jvm_options` is the same for Spark."""
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.brokers,
        "security.protocol": kafka.security_protocol,
        "socket.timeout.ms": int(ANSWER_S * 1000),
        "log_level": 2,  # critical: what matters comes as an error
    }
    if kafka.security_protocol.startswith("SASL"):
        password = config.read_secret(kafka.sasl_password_file, "kafka.sasl_password_file")
        options |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.sasl_username,
            "sasl.password": password,
        }
    files = {
        "ssl.ca.location": kafka.ca_file,
        "ssl.certificate.location": kafka.certificate_file,
        "ssl.key.location": kafka.key_file,
    }
    return options | {key: path for key, path in files.items() if path}


def silent() -> logging.Logger:
    """Takes what librdkafka would print: what matters comes as an error."""
    logger = logging.getLogger("protolake.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
