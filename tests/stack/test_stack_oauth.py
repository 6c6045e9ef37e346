"""OAUTHBEARER: each of the three kinds of client gets its token from a real endpoint, and a real broker checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_app.audit import broker
from spark_app.audit.broker import Kafka
from spark_app.model.errors import ConfigurationError, ExitCode, UnreachableError
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import topics
from spark_app.sources.kafka.topics import BrokerAccessDenied, BrokerUnreachable, Topics
from tests.chaos import read_back
from tests.chaos.stage import Stage
from tests.support import ledger, tokens
from tests.support.secure import SecureKafka
from tests.support.tokens import CLIENT, SECRET, Endpoint

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("secure-broker")) as server:
        yield server


@pytest.fixture
def endpoint(kafka: SecureKafka) -> Iterator[Endpoint]:
    with tokens.endpoint(kafka.issuer, kafka.authority.server_file) as endpoint:
        yield endpoint


def _settings(kafka: SecureKafka, endpoint: Endpoint, folder: Path, secret: str = SECRET) -> dict[str, str]:
    (folder / "secret").write_text(f"{secret}\n")
    return {
        "KAFKA__BROKERS": kafka.secure_bootstrap,
        "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA__SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA__SASL_USERNAME": CLIENT,
        "KAFKA__SASL_PASSWORD_FILE": str(folder / "secret"),
        "KAFKA__OAUTH_TOKEN_URL": endpoint.url,
        "KAFKA__OAUTH_SCOPE": "read",
        "KAFKA__OAUTH_EXTENSIONS": "logicalCluster=lkc-1,identityPoolId=pool-2",
        "KAFKA__OAUTH_CA_FILE": str(kafka.authority.ca_file),
        "KAFKA__CA_FILE": str(kafka.authority.ca_file),
        "RUN__LOG_LEVEL": "DEBUG",
    }


def test_a_token_for_each_client(
    kafka: SecureKafka, endpoint: Endpoint, new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = new_stage(**_settings(kafka, endpoint, tmp_path))
    stage.produce(500)
    assert stage.run("--available-now") == ExitCode.DONE
    assert ledger.verify(stage.lake, read_back.consume(kafka.bootstrap, stage.topic)).faults() == {}
    assert set(endpoint.scopes) == {"read"}
    assert not any(secret in stage.log.read_text() for secret in (SECRET, *endpoint.tokens))


def _ask(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_S", 6.0)
    Topics(_known(settings)).look()


def _known(settings: dict[str, str]) -> KafkaSettings:
    known = {key.removeprefix("KAFKA__").lower(): value for key, value in settings.items() if key.startswith("KAFKA__")}
    return KafkaSettings(**known, topic="t")  # type: ignore[arg-type]


def test_a_wrong_secret_is_named_and_not_echoed(
    kafka: SecureKafka, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokerAccessDenied, match=r"invalid_client.*kafka\.sasl_password_file") as refused:
        _ask(_settings(kafka, endpoint, tmp_path, "no-such-secret"), monkeypatch)
    assert "no-such-secret" not in str(refused.value)


@pytest.mark.nightly
def test_an_unknown_authority_of_the_endpoint_is_named(
    kafka: SecureKafka, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokerAccessDenied, match=r"self-signed certificate.*kafka\.oauth_ca_file"):
        _ask(_settings(kafka, endpoint, tmp_path) | {"KAFKA__OAUTH_CA_FILE": ""}, monkeypatch)


@pytest.mark.nightly
def test_an_endpoint_that_is_not_there_is_an_outage(
    kafka: SecureKafka, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"KAFKA__OAUTH_TOKEN_URL": "https://127.0.0.1:1/token"}
    with pytest.raises(BrokerUnreachable, match="returned no token"):
        _ask(_settings(kafka, endpoint, tmp_path) | gone, monkeypatch)


@pytest.mark.nightly
def test_the_audit_tells_a_refusal_from_an_outage_and_echoes_no_secret(
    kafka: SecureKafka, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "ANSWER_S", 6.0)
    wrong = _settings(kafka, endpoint, tmp_path, "no-such-secret")
    endpoint.description = "nobody has the secret no-such-secret"
    with pytest.raises(ConfigurationError, match=r"invalid_client.*kafka\.sasl_password_file") as refused:
        Kafka(_known(wrong), 3.0, 1000).topic_id("t")
    assert "no-such-secret" not in str(refused.value)
    with pytest.raises(UnreachableError, match="returned no token"):
        Kafka(_known(wrong | {"KAFKA__OAUTH_TOKEN_URL": "https://127.0.0.1:1/token"}), 3.0, 1000).topic_id("t")
