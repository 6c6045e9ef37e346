"""How librdkafka is told to reach the brokers: the same for whoever reads from them."""

from __future__ import annotations

import logging
import ssl
from typing import Any

from spark_app.settings import config
from spark_app.settings.connections import KafkaSettings

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
        options |= {"sasl.mechanism": kafka.sasl_mechanism} | _login(kafka)
    files = {
        "ssl.ca.location": kafka.ca_file,
        "ssl.certificate.location": kafka.certificate_file,
        "ssl.key.location": kafka.key_file,
    }
    return options | {key: path for key, path in files.items() if path}


def _login(kafka: KafkaSettings) -> dict[str, str]:
    password = config.read_secret(kafka.sasl_password_file, "kafka.sasl_password_file")
    if not kafka.uses_oauth:
        return {"sasl.username": kafka.sasl_username, "sasl.password": password}
    system = ssl.get_default_verify_paths()
    options = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": kafka.sasl_username,
        "sasl.oauthbearer.client.secret": password,
        "sasl.oauthbearer.token.endpoint.url": kafka.oauth_token_url,
        "sasl.oauthbearer.scope": kafka.oauth_scope,
        "sasl.oauthbearer.extensions": kafka.oauth_extensions,
        # Its own default is a file that only one family of Linux has.
        "https.ca.location": kafka.oauth_ca_file or system.cafile or system.capath,
    }
    return {key: value for key, value in options.items() if value}


def silent() -> logging.Logger:
    """Takes what librdkafka would print: what matters comes as an error."""
    logger = logging.getLogger("protolake.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
