"""A secret that changes while the app runs: each client is refused, says so, and goes on when the file is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from spark_app.model.errors import ExitCode
from spark_app.model.offsets import ReadFailed, Span
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import broker_access
from spark_app.sources.kafka import input as kafka_input
from spark_app.sources.kafka.input import Share
from tests.chaos.stage import Stage, kill, wait_for
from tests.support import tokens
from tests.support.secure import PASSWORD, USER, SecureKafka
from tests.support.tokens import CLIENT, SECRET, Endpoint

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
ASKS_AGAIN_MS = 2_000
NEXT = "the-next-secret"
SOON_S = 60.0  # the longest pause between two tries is 5 s; the rest is for a busy machine


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    server = SecureKafka(tmp_path_factory.mktemp("rotating-broker"))
    server.asks_again_ms = ASKS_AGAIN_MS
    with server:
        yield server


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return tmp_path / "secret"


@pytest.fixture
def scram(kafka: SecureKafka, secret: Path) -> dict[str, str]:
    secret.write_text(f"{PASSWORD}\n")
    kafka.add_scram_user()
    return {
        "KAFKA__BROKERS": kafka.secure_bootstrap,
        "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA__SASL_USERNAME": USER,
        "KAFKA__SASL_PASSWORD_FILE": str(secret),
        "KAFKA__CA_FILE": str(kafka.authority.ca_file),
    }


@pytest.fixture
def endpoint(kafka: SecureKafka) -> Iterator[Endpoint]:
    with tokens.endpoint(kafka.issuer, kafka.authority.server_file, seconds=8) as endpoint:
        yield endpoint


@pytest.fixture
def oauth(kafka: SecureKafka, endpoint: Endpoint, scram: dict[str, str], secret: Path) -> dict[str, str]:
    secret.write_text(f"{SECRET}\n")
    return scram | {
        "KAFKA__SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA__SASL_USERNAME": CLIENT,
        "KAFKA__OAUTH_TOKEN_URL": endpoint.url,
        "KAFKA__OAUTH_SCOPE": "read",
        "KAFKA__OAUTH_CA_FILE": str(kafka.authority.ca_file),
    }


def _rotate(stage: Stage, settings: dict[str, str], secret: Path, change: Callable[[], None]) -> None:
    """The app takes records, is refused while it plans, for there are no more, is given the new secret, and takes the
    rest."""
    stage.produce(300)
    app = stage.start(RUN__CONNECT_TIMEOUT_S="120", **settings)
    try:
        assert wait_for(app, 120, lambda: stage.unit() >= 1)
        change()
        assert wait_for(app, 150, lambda: "refuses access" in str(stage.status().get("reason")))
        unit = stage.unit()
        secret.write_text(f"{NEXT}\n")
        stage.produce(300)
        assert wait_for(app, SOON_S, lambda: stage.unit() > unit)
    finally:
        kill(app)
    assert set(stage.drain(**settings)) <= {ExitCode.DONE, ExitCode.BUMP}
    assert stage.verify(**settings) == {}
    assert not any(word in stage.log.read_text() for word in (PASSWORD, SECRET, NEXT))


@pytest.mark.nightly
def test_a_password_that_changes_while_the_app_runs(
    kafka: SecureKafka, scram: dict[str, str], secret: Path, new_stage: Callable[..., Stage]
) -> None:
    _rotate(new_stage(), scram, secret, lambda: kafka.add_scram_user(NEXT))


@pytest.mark.nightly
def test_a_client_secret_that_changes_while_the_app_runs(
    oauth: dict[str, str], endpoint: Endpoint, secret: Path, new_stage: Callable[..., Stage]
) -> None:
    endpoint.description = f"only {NEXT} is good"
    _rotate(new_stage(), oauth, secret, lambda: setattr(endpoint, "secret", NEXT))


@pytest.mark.nightly
def test_a_worker_reads_the_file_again_when_it_was_refused(
    kafka: SecureKafka, scram: dict[str, str], secret: Path, new_stage: Callable[..., Stage]
) -> None:
    stage = new_stage()
    stage.produce(300)
    known = {key.removeprefix("KAFKA__").lower(): value for key, value in scram.items()}
    settings = KafkaSettings(**known, topic=stage.topic)  # type: ignore[arg-type]
    try:
        first = _read(settings, 0, 10)
        kafka.add_scram_user(NEXT)
        with pytest.raises(ReadFailed) as refused:
            _read_on(settings)
        said = (KafkaError(code, words) for code, words in refused.value.errors)
        assert "kafka.sasl_password_file" in (broker_access.refusal(said, settings) or "")
        secret.write_text(NEXT)
        assert first + _read(settings, 10, 20) == list(range(20))
    finally:
        kafka_input.close()


def _read(settings: KafkaSettings, start: int, end: int) -> list[int]:
    """The offsets of a part of the first partition."""
    part = Share(settings, (Span(settings.topic, 0, start, end),), 1, 1000, 1 << 20, 1 << 20)
    return [offset for batch in part.read() for offset in batch.column("offset").to_pylist()]


def _read_on(settings: KafkaSettings) -> None:
    """Until the broker asks for the login again, and long after."""
    for _ in range(1000):
        assert _read(settings, 10, 20)
        time.sleep(0.05)
