"""librdkafka's connection options, shared by all clients."""

from __future__ import annotations

import logging
import ssl
from typing import Any

from spark_app.settings import config
from spark_app.settings.connections import KafkaSettings

ANSWER_S = 10.0  # timeout of a request


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """librdkafka's options, from the settings; `spark_source.jvm_options` is the counterpart for Spark.

    Raises:
        ConfigurationError: the password file cannot be read.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": kafka.brokers,
        "security.protocol": kafka.security_protocol,
        "socket.timeout.ms": int(ANSWER_S * 1000),
        "log_level": 2,  # critical only: relevant events are also returned as errors
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
        # librdkafka's default is a file that exists only on one family of Linux.
        "https.ca.location": kafka.oauth_ca_file or system.cafile or system.capath,
    }
    return {key: value for key, value in options.items() if value}


def silent() -> logging.Logger:
    """A logger that discards librdkafka's output; errors are returned or raised."""
    logger = logging.getLogger("protolake.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
