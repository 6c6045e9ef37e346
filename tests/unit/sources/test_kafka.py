"""Kafka's errors: who is not there, who refuses us and why, and what is no error of Kafka's; and sizes of records."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import broker_access
from spark_app.sources.kafka.record_sizes import RecordSizes
from spark_app.sources.kafka.spark_source import is_unanswered, refusal

# As Spark 4.2 with Kafka's client 3.9 says them.
SILENCE = [
    "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out",
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.",
    "[STREAM_FAILED] Query terminated with exception: Failed to create new KafkaAdminClient",
    "org.apache.kafka.common.KafkaException: Failed to construct kafka consumer",
    "org.apache.kafka.common.errors.DisconnectException: Cancelled fetchMetadata request",
]
OTHERS = [
    "java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]",
    "org.apache.spark.SparkException: Could not execute broadcast in 300 secs. java.util.concurrent.TimeoutException",
    "org.apache.spark.rpc.RpcTimeoutException: Cannot receive any reply in 120 seconds",
    "com.example.MyKafkaException: a word of somebody else",
    "a worker died",
]


@pytest.mark.parametrize("text", SILENCE)
def test_the_silence_of_a_broker_is_known(text: str) -> None:
    assert is_unanswered(f"An error occurred while calling o1.collect.\n: {text}\n\tat java.lang.Thread.run")


@pytest.mark.parametrize("text", OTHERS)
def test_a_time_out_of_another_library_is_not_the_brokers(text: str) -> None:
    assert not is_unanswered(text)
    assert refusal(text) is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("TopicAuthorizationException: Not authorized to access topics: [t]", "Not authorized to access topics: [t]"),
        ("GroupAuthorizationException: Not authorized to access group: g", "Not authorized to access group: g"),
        ("SaslAuthenticationException: Authentication failed: Invalid username", "Invalid username"),
        ("SslAuthenticationException: SSL handshake failed", "SSL handshake failed"),
    ],
)
def test_a_refusal_that_spark_met_is_named(text: str, named: str) -> None:
    said = f"Job aborted\n: org.apache.kafka.common.errors.{text}\n\tat java.lang.Thread.run"
    assert named in (refusal(said) or "")
    assert not is_unanswered(said)


def test_what_a_broker_says_to_a_login_of_spark_is_not_passed_on() -> None:
    said = "org.apache.kafka.common.errors.SaslAuthenticationException: invalid credentials: s3cret\n\tat java.lang"
    assert (refusal(said) or "").startswith("SaslAuthenticationException: invalid credentials: check")


OAUTH = KafkaSettings(
    security_protocol="SASL_SSL",
    sasl_mechanism="OAUTHBEARER",
    sasl_username="me",
    oauth_token_url="https://login.example.com/token",
)
OIDC = "Failed to acquire SASL OAUTHBEARER token"
AT = "sasl_ssl://kafka:9093/bootstrap"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{OIDC}: HTTP 401: invalid_client: no client has s3cret", f"{OIDC}: invalid_client"),
        (f"{OIDC}: s3cret: try later", OIDC),
        (f"Failed to initialize SASL authentication: no token; last error: {OIDC}: s3cret", OIDC),
        (f"{AT}: SASL authentication error: invalid credentials of s3cret (after 3ms)", f"{AT}: SASL authentication"),
        (f"{AT}: SASL SCRAM authentication failed: broker responded with s3cret", f"{AT}: SASL SCRAM"),
        (
            f"{AT}: SASL PLAIN mechanism handshake failed: no: broker's supported mechanisms: SCRAM-SHA-512",
            "supported mechanisms: SCRAM-SHA-512",
        ),
        ("what s3cret?", "Authentication failure"),
    ],
)
def test_of_what_is_said_to_a_login_only_known_words_are_passed_on(text: str, told: str) -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    words = broker_access.words(error)
    assert told in words
    assert "s3cret" not in words
    assert broker_access.words(KafkaError(error.code(), words)) == words
    assert "s3cret" not in (broker_access.refusal([error], OAUTH) or "")


def test_an_endpoint_that_gives_no_token_refuses_only_when_it_says_so() -> None:
    refused, down = (KafkaError(KafkaError._AUTHENTICATION, f"{OIDC}: {why}") for why in ("invalid_client", "HTTP 503"))
    assert "kafka.sasl_password_file" in (broker_access.refusal([down, refused], OAUTH) or "")
    assert broker_access.refusal([down], OAUTH) is None
    assert "returned no token" in broker_access.no_token_note([down], OAUTH)


@contextlib.contextmanager
def closing_server(says: bytes) -> Iterator[str]:
    """A server that takes what comes, says something and hangs up, such as a proxy whose broker is down."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 12])
def test_who_does_not_answer_as_kafka_speaks_no_protocol_of_it(says: bytes) -> None:
    """An outage must not be taken for a wrong setting: the app would be held."""
    with closing_server(says) as address:
        assert broker_access.speaks(address) is None
    assert broker_access.speaks(address) is None


def test_batches_shrink_and_grow_with_the_records() -> None:
    sizes = RecordSizes(records=10_000, most_bytes=1_000_000)
    assert sizes.limit() == 10_000
    sizes.add(1_000, 50_000)
    assert (sizes.limit(), sizes.needs_new_limit(10_000)) == (10_000, False)
    sizes.add(10_000, 10_000_000)
    assert (sizes.limit(), sizes.needs_new_limit(10_000), sizes.needs_new_limit(sizes.limit())) == (1094, True, False)
    for _ in range(40):
        sizes.add(1_094, 54_700)
    assert (sizes.limit() > 4 * 1094, sizes.needs_new_limit(1094)) == (True, True)


def test_a_single_large_record_among_many_small_ones_changes_nothing() -> None:
    sizes = RecordSizes(records=10_000, most_bytes=1_000_000)
    sizes.add(10_000, 500_000)
    sizes.add(1, 300_000)
    assert not sizes.needs_new_limit(10_000)


def test_a_record_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    sizes = RecordSizes(records=10_000, most_bytes=1_000)
    sizes.add(3, 30_000)
    assert sizes.limit() == 1
