"""Why a broker that is there does not let us in, and which setting that concerns. Nobody but an operator can help then,
so it is told apart from a broker that is not there.
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
ALERT = "SSL alert number"  # librdkafka has OpenSSL's words for what the other side says before it hangs up
NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
# librdkafka's words for a login that fails, and behind the colon what the broker or the token endpoint said.
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
ACCESS_DENIED_TIMEOUT_S = 30.0  # that a broker may refuse: it may itself have started just now
PROBE_S = 2.0
# A SaslHandshake request, version 1, for a mechanism that there is not: all listeners of Kafka answer it, whatever
# their protocol and before any login.
HANDSHAKE = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 5) + b"PROBE"
NO_SASL_HERE = 34  # ILLEGAL_SASL_STATE


def refusal(said: Iterable[KafkaError], kafka: KafkaSettings) -> str | None:
    """What the brokers refuse, with the settings to look at; None where they said nothing of the kind.

    Args:
        said: the error of a request, and what librdkafka said meanwhile.
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
            continue  # it may give one later
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
    """What may be passed on of an error. What the other side of a login says may repeat the secret that it was told: of
    that only known words are."""
    text = error.str()
    login = LOGIN.fullmatch(text)
    if login:
        return ": ".join(filter(None, (login[1], safe_excerpt(login[2] or ""))))
    return KafkaError(error.code()).str() if error.code() in LOGINS else text


def safe_excerpt(text: str) -> str:
    """What says why a login failed, and no secret."""
    return ", ".join(dict.fromkeys(SAID.findall(text)))


def no_token_note(said: Iterable[KafkaError], kafka: KafkaSettings) -> str:
    """What to add where the brokers were not even asked, for nobody gave a token; else nothing."""
    return f", {kafka.oauth_token_url} returned no token" if any(NO_TOKEN in error.str() for error in said) else ""


def _about_certificate(kafka: KafkaSettings) -> str:
    if not kafka.certificate_file:
        return "the brokers require a client certificate: set kafka.certificate_file and kafka.key_file"
    return f"has kafka.certificate_file ({kafka.certificate_file}) expired, and do the brokers trust its authority?"


def mismatch(kafka: KafkaSettings) -> str | None:
    """That a broker speaks another protocol than the settings name; None when it speaks that, or none answers."""
    for address in kafka.brokers.split(","):
        found = speaks(address.strip())
        if found:
            wrong = found != kafka.security_protocol
            return f"{address} uses {found}: check kafka.security_protocol" if wrong else None
    return None


def speaks(address: str) -> str | None:
    """Which `security.protocol` a listener of Kafka has; None where none answers as Kafka does. A guess by librdkafka's
    words would take a proxy whose broker is down for a wrong setting."""
    host, _, port = address.rpartition(":")
    place = host.strip("[]"), int(port) if port.isdecimal() else 0
    try:
        for tls in (True, False):
            plain = socket.create_connection(place, PROBE_S)  # where nobody listens, once is enough
            with (
                contextlib.suppress(OSError, ValueError, struct.error),
                plain,
                _secured(plain, host) if tls else plain as channel,
            ):
                return _protocol(channel, tls)
    except OSError:
        return None
    return None


def _secured(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """Nothing is told to the other side, so that it need not prove who it is."""
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
