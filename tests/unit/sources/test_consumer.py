"""A worker's consumer before it has a broker: what it is made of, and what it says when it cannot be made."""

from pathlib import Path

import numpy as np
import pytest

from spark_app.model.offsets import ReadFailed, ReadFailure, Span
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import input as kafka_input
from spark_app.sources.kafka import librdkafka


def read(kafka: KafkaSettings, topic: str = "t") -> ReadFailed:
    with pytest.raises(ReadFailed) as unread:
        next(kafka_input.Share(kafka, (Span(topic, 0, 0, 1),), 1, 1, 1, 1).read())
    assert kafka_input._kept == {}
    assert unread.value.why == ReadFailure.SILENT
    return unread.value


def test_secrets_are_read_where_they_are_used_and_are_in_nothing_that_travels(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("canary\n")
    kafka = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_username="me", sasl_password_file=str(password), sasl_mechanism="PLAIN"
    )
    assert kafka_input.options_for(kafka, 1)["sasl.password"] == "canary"
    assert "canary" not in repr(kafka_input.Share(kafka, (), 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security_protocol": "SSL", "ca_file": "nowhere"}, "ssl.ca.location"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_username": "me", "sasl_password_file": "nowhere"}, "nowhere"),
    ],
    ids=["certificate", "password"],
)
def test_a_file_that_is_gone_for_a_moment_is_waited_for(given: dict[str, str], said: str) -> None:
    assert said in str(read(KafkaSettings(**given)))  # type: ignore[arg-type]


def test_a_topic_that_no_client_takes_is_said() -> None:
    unread = read(KafkaSettings(brokers="127.0.0.1:9"), "t" * 600)
    assert "cannot be opened" in str(unread)


def test_prefetching_is_bounded_whatever_the_number_of_partitions() -> None:
    found = {count: kafka_input.options_for(KafkaSettings(), count) for count in (1, 4, 1000)}
    assert [options["queued.max.messages.kbytes"] for options in found.values()] == [16 << 10, 4 << 10, 64]
    assert [options["fetch.message.max.bytes"] for options in found.values()] == [1 << 20, 1 << 20, 64 << 10]


def test_headers_that_no_column_has_room_for_are_an_error_and_no_text_at_another_place() -> None:
    room = np.array([2**31 - 1 - 7, 7])
    assert librdkafka._ends(room).tolist() == [0, 2**31 - 8, 2**31 - 1]
    with pytest.raises(OverflowError, match="headers have 2147483648 bytes"):
        librdkafka._ends(np.array([*room, 1]))
