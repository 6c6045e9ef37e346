"""Someone's own servers: TLS, passwords in files, and what is said when they are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.campaign import ledger
from scripts.campaign.stage import Stage
from spark_app.errors import ExitCode
from tests.support.secure import PASSWORD, USER, SecureKafka

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_tls_and_password(kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path, mechanism: str) -> None:
    stage = new_stage()
    stage.produce(500)
    assert stage.run("--available-now", **_settings(kafka, tmp_path, mechanism)) == ExitCode.DONE
    assert ledger.verify(stage.lake, ledger.consume(kafka.bootstrap, stage.topic)).faults() == {}
    assert PASSWORD not in stage.log.read_text()


def test_wrong_password_and_wrong_authority_are_named(
    kafka: SecureKafka, new_stage: Callable[..., Stage], tmp_path: Path
) -> None:
    stage = new_stage(RUN__PATIENCE_S="3")
    stage.produce(10)
    wrong = _settings(kafka, tmp_path, "SCRAM-SHA-512", "no-such-password")
    assert stage.run(**wrong) == ExitCode.CONFIGURATION
    assert "check kafka.sasl_*" in stage.lines()[-1]
    assert "no-such-password" not in stage.log.read_text()
    other = _settings(kafka, tmp_path, "PLAIN") | {"KAFKA__CA_FILE": ""}
    assert stage.run(**other) == ExitCode.CONFIGURATION
    assert "refuses the login" in stage.lines()[-1]
