"""Recognises that a broker denies access (login, certificate, ACL), and names the settings to check.

Only a person can fix that, so the app treats it differently from a broker that does not respond.

The reasons: docs/decisions/kafka-login.md.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Iterable

from confluent_kafka import KafkaError

from spark_app.settings.connections import KafkaSettings

AUTHORIZATION = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
LOGINS = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
)
ALERT = "SSL alert number"  # in OpenSSL's error text for an alert that the broker sends before it closes a connection
NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
# librdkafka's text of a failed login; after the colon it has the text of the broker or of the token endpoint.
LOGIN = re.compile(r"(.*?\b(?:SASL|Sasl|OAUTHBEARER)[^:]*)(?:: (.*))?", re.DOTALL)
TOKEN_REFUSED = re.compile(
    r"invalid_(?:client|grant|request|scope|target|token)|unauthorized_client|unsupported_grant_type|access_denied"
    r"|certificate has expired|self-signed certificate|local issuer certificate|trust anchors|wrong version number"
)
SAID = re.compile(
    rf"{TOKEN_REFUSED.pattern}|{NO_TOKEN}|invalid credentials|Invalid username(?: or password)?"
    r"|supported mechanisms: [A-Z0-9,-]+"
)
TOKEN_REMEDY = (
    "check kafka.sasl_username, kafka.sasl_password_file, kafka.oauth_scope, kafka.oauth_token_url and, for its "
    "certificate, kafka.oauth_ca_file"
)
ACCESS_DENIED_TIMEOUT_S = 30.0  # how long a broker may deny access: it may have just started
PROBE_S = 2.0
# A SaslHandshake request, version 1, for a mechanism that does not exist. Every Kafka listener responds to it, with any
# protocol and before any login.
HANDSHAKE = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 5) + b"PROBE"
NO_SASL_HERE = 34  # ILLEGAL_SASL_STATE


def refusal(said: Iterable[KafkaError], kafka: KafkaSettings) -> str | None:
    """The reason for which access is denied, with the settings to check; None if no error is of this kind.

    Args:
        said: the error of a request, and the errors that librdkafka reported during the request.
    """
    for error in said:
        code, text = error.code(), words(error)
        if code in AUTHORIZATION:
            who = f"user {kafka.sasl_username!r}" if kafka.sasl_username else "this client"
            return f"{text}: give {who} the ACLs Describe and Read on topic {kafka.topic}, and Read on its groups"
        if NO_TOKEN in text:
            found = TOKEN_REFUSED.search(text)
            if found:
                return f"{kafka.oauth_token_url} returns no token ({found[0]}): {TOKEN_REMEDY}"
            continue  # the token endpoint may return a token later
        if code in LOGINS and kafka.uses_oauth:
            return f"{text}: check kafka.oauth_scope, kafka.oauth_extensions and what the brokers require of a token"
        if code in LOGINS:
            return f"{text}: check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password_file"
        if code == KafkaError._SSL and "certificate verify failed" in text:
            return f"{text}: check kafka.ca_file: its authority must have signed the brokers' certificates"
        if ALERT in text:
            return f"{text}: {_about_certificate(kafka)}"
    return None


def words(error: KafkaError) -> str:
    """The text of an error without secrets. After a failed login the server's text may repeat the secret, so only known
    phrases of it are kept."""
    text = error.str()
    login = LOGIN.fullmatch(text)
    if login:
        return ": ".join(filter(None, (login[1], safe_excerpt(login[2] or ""))))
    return KafkaError(error.code()).str() if error.code() in LOGINS else text


def safe_excerpt(text: str) -> str:
    """The known phrases of a login error, which contain no secret."""
    return ", ".join(dict.fromkeys(SAID.findall(text)))


def no_token_note(said: Iterable[KafkaError], kafka: KafkaSettings) -> str:
    """A note for the error text if the token endpoint returned no token, so that no broker was contacted; else ""."""
    return f", {kafka.oauth_token_url} returned no token" if any(NO_TOKEN in error.str() for error in said) else ""


def _about_certificate(kafka: KafkaSettings) -> str:
    if not kafka.certificate_file:
        return "the brokers require a client certificate: set kafka.certificate_file and kafka.key_file"
    return f"has kafka.certificate_file ({kafka.certificate_file}) expired, and do the brokers trust its authority?"


def mismatch(kafka: KafkaSettings) -> str | None:
    """A message if a broker uses another protocol than the settings; None if it uses that, or no broker responds."""
    for address in kafka.brokers.split(","):
        found = speaks(address.strip())
        if found:
            wrong = found != kafka.security_protocol
            return f"{address} uses {found}: check kafka.security_protocol" if wrong else None
    return None


def speaks(address: str) -> str | None:
    """The `security.protocol` of a Kafka listener; None if none responds as Kafka does. librdkafka's error text cannot
    show it: a proxy whose broker is down causes the same text as a wrong protocol."""
    host = address.rpartition(":")[0]
    try:
        for tls in (True, False):
            plain = _connect(address)  # if this fails, a second connection would fail, too
            with (
                contextlib.suppress(OSError, ValueError, struct.error),
                plain,
                _secured(plain, host) if tls else plain as channel,
            ):
                return _protocol(channel, tls)
    except OSError:
        return None
    return None


def one_listens(kafka: KafkaSettings) -> bool:
    """Whether any broker takes a connection. If none does, librdkafka tries again for as long as a request may take."""
    for address in kafka.brokers.split(","):
        with contextlib.suppress(OSError):
            _connect(address.strip()).close()
            return True
    return False


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port) if port.isdecimal() else 0), PROBE_S)


def _secured(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """A TLS connection without verification: no secret is sent, so the server need not be authenticated."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=host)


def _protocol(channel: socket.socket, tls: bool) -> str:
    channel.sendall(struct.pack(">i", len(HANDSHAKE)) + HANDSHAKE)
    answer = channel.recv(4096)
    length, number, error = struct.unpack_from(">iih", answer)
    if number != 7 or length < 6:
        raise ValueError("no answer of Kafka's")
    return f"{'' if error == NO_SASL_HERE else 'SASL_'}{'SSL' if tls else 'PLAINTEXT'}"
