"""Someone's own servers: TLS, passwords in files, and what is said when they are wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from spark_app.model.errors import ExitCode
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import broker_access, topics
from spark_app.sources.kafka.topics import BrokerAccessDenied, BrokerUnreachable, Topics
from tests.chaos import read_back
from tests.chaos.stage import Stage
from tests.support import ledger
from tests.support.secure import PASSWORD, USER, SecureKafka

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
Client = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("secure-broker")) as server:
        server.add_scram_user()
        yield server


def _settings(kafka: SecureKafka, folder: Path, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    secret = folder / "password"
    secret.write_text(f"{password}\n")
    return {
        "KAFKA__BROKERS": kafka.secure_bootstrap,
        "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA__SASL_MECHANISM": mechanism,
        "KAFKA__SASL_USERNAME": USER,
        "KAFKA__SASL_PASSWORD_FILE": str(secret),
        "KAFKA__CA_FILE": str(kafka.authority.ca_file),
        "RUN__LOG_LEVEL": "DEBUG",
    }


@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.nightly), "SCRAM-SHA-512"])
def test_tls_and_password(kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path, mechanism: str) -> None:
    stage = new_stage()
    stage.produce(500)
    assert stage.run("--available-now", **_settings(kafka, tmp_path, mechanism)) == ExitCode.DONE
    assert ledger.verify(stage.lake, read_back.consume(kafka.bootstrap, stage.topic)).faults() == {}
    assert PASSWORD not in stage.log.read_text()


@pytest.mark.nightly
def test_a_client_certificate(kafka: SecureKafka, new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(**_with_certificate(kafka, days=1))
    stage.produce(500)
    assert stage.run("--available-now") == ExitCode.DONE
    assert ledger.verify(stage.lake, read_back.consume(kafka.bootstrap, stage.topic)).faults() == {}


def _with_certificate(kafka: SecureKafka, days: int) -> dict[str, str]:
    certificate, key = kafka.authority.certify("client", days)
    return {
        "KAFKA__BROKERS": kafka.mutual_bootstrap,
        "KAFKA__SECURITY_PROTOCOL": "SSL",
        "KAFKA__CA_FILE": str(kafka.authority.ca_file),
        "KAFKA__CERTIFICATE_FILE": str(certificate),
        "KAFKA__KEY_FILE": str(key),
    }


def test_wrong_password_and_wrong_authority_are_named(
    kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = new_stage(RUN__CONNECT_TIMEOUT_S="3")
    stage.produce(10)
    wrong = _settings(kafka, tmp_path, "SCRAM-SHA-512", "no-such-password")
    assert stage.run(**wrong) == ExitCode.CONFIGURATION
    assert "check kafka.sasl_mechanism, kafka.sasl_username and kafka.sasl_password_file" in stage.lines()[-1]
    assert "no-such-password" not in stage.log.read_text()
    other = _settings(kafka, tmp_path, "PLAIN") | {"KAFKA__CA_FILE": ""}
    assert stage.run(**other) == ExitCode.CONFIGURATION
    assert "check kafka.ca_file" in stage.lines()[-1]


@pytest.mark.nightly
def test_an_expired_certificate_holds_the_app(kafka: SecureKafka, new_stage: Callable[..., Stage]) -> None:
    stage = new_stage(RUN__CONNECT_TIMEOUT_S="3", **_with_certificate(kafka, days=-1))
    stage.produce(10)
    assert stage.run() == ExitCode.CONFIGURATION
    assert ") expired, and" in stage.lines()[-1]
    assert stage.status()["state"] == "held"


@pytest.mark.nightly
def test_a_missing_right_to_read_holds_the_app(
    kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    """The topic may be looked at, so that only a worker meets it."""
    stage = new_stage(RUN__CONNECT_TIMEOUT_S="3")
    stage.produce(10)
    kafka.deny(stage.topic, AclOperation.READ)
    assert stage.run(**_settings(kafka, tmp_path, "PLAIN")) == ExitCode.CONFIGURATION
    assert "Topic authorization failed" in stage.lines()[-1]
    assert "ACLs" in stage.lines()[-1]
    assert not (stage.lake / "_protolake" / "attempts.json").exists()  # the records are not to blame
    assert stage.status()["state"] == "held"


@pytest.mark.nightly
def test_a_wrong_kafka_setting_does_not_wait_for_the_registry(
    kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = new_stage(REGISTRY__URL="http://127.0.0.1:1", RUN__CONNECT_TIMEOUT_S="3600")
    unreadable = _settings(kafka, tmp_path, "PLAIN") | {"KAFKA__SASL_PASSWORD_FILE": str(tmp_path / "nothing")}
    began = time.monotonic()
    assert stage.run(**unreadable) == ExitCode.CONFIGURATION
    assert time.monotonic() - began < 600
    assert "kafka.sasl_password_file: cannot read" in stage.lines()[-1]


@pytest.fixture
def client(kafka: SecureKafka, tmp_path: Path) -> Client:
    """The settings of a client of a listener, by the protocol that it is told."""
    login = _settings(kafka, tmp_path, "PLAIN")
    known = {key.removeprefix("KAFKA__").lower(): value for key, value in login.items() if key.startswith("KAFKA__")}
    return lambda brokers, protocol: known | {"brokers": brokers, "security_protocol": protocol}


def _refusal(settings: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(topics, "ANSWER_S", 6.0)
    with pytest.raises(BrokerAccessDenied) as refused:
        Topics(KafkaSettings(**settings | {"topic": topic})).look()
    return str(refused.value)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_protocol_is_named_with_the_right_one(
    kafka: SecureKafka, client: Client, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(broker_access, "PROBE_S", 10.0)
    listeners = {"PLAINTEXT": kafka.bootstrap, "SASL_SSL": kafka.secure_bootstrap}
    for right, address in listeners.items():
        assert broker_access.speaks(address) == right
        if right != protocol:
            said = _refusal(client(address, protocol), "t", monkeypatch)
            assert said == f"{address} uses {right}: check kafka.security_protocol"


def test_a_missing_certificate_is_named(kafka: SecureKafka, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _refusal(client(kafka.mutual_bootstrap, "SSL"), "t", monkeypatch)
    assert "the brokers require a client certificate: set kafka.certificate_file" in said


def test_a_missing_right_is_named(kafka: SecureKafka, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("hidden", 1, 1)])["hidden"].result()
    kafka.deny("hidden", AclOperation.DESCRIBE)
    said = _refusal(client(kafka.secure_bootstrap, "SASL_SSL"), "hidden", monkeypatch)
    assert f"give user {USER!r} the ACLs Describe and Read on topic hidden" in said


def test_a_broker_that_is_not_there_refuses_nobody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ANSWER_S", 2.0)
    with pytest.raises(BrokerUnreachable):
        Topics(KafkaSettings(**client("127.0.0.1:1", "SASL_SSL"))).look()
