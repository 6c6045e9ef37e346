"""Why the query ended, and what is said of it: judged without a JVM, by the errors that Spark has."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from pyspark.errors import StreamingQueryException

from spark_app.model.errors import BrokenError, ConfigurationError, ContractError, UnreachableError
from spark_app.model.offsets import ReadFailed, ReadFailure
from spark_app.settings.connections import KafkaSettings
from spark_app.settings.models import Settings
from spark_app.sources.kafka.broker_access import ACCESS_DENIED_TIMEOUT_S
from spark_app.sources.kafka.record_sizes import RecordSizes
from spark_app.sources.kafka.topics import BrokerAccessDenied, BrokerUnreachable, Topic
from spark_app.units.driver.disk_space import DiskSpaceGuard
from spark_app.units.driver.ingest import Ingest, RunContext, describe_range
from spark_app.units.driver.loss import TopicCheck
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.status import Status
from spark_app.units.driver.streaming import Streaming
from tests.chaos.units import ingest_unit, open_lake

LOST = "[KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost"
REFUSED = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]"
OAUTH = KafkaSettings(
    security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_username="me", oauth_token_url="https://a/token"
)
SILENT = "org.apache.kafka.common.errors.TimeoutException: Call(describeTopics) timed out"


class Brokers:
    """What would be asked of them: where the topic begins, or that none answers."""

    def __init__(self, first: int | None):
        self._first = first
        self.refused = ""
        self.logins = 0

    def ids(self) -> dict[str, str]:
        if self.refused:
            raise BrokerAccessDenied(self.refused)
        raise BrokerUnreachable("nobody")

    def log_in_again(self) -> None:
        self.logins += 1

    def look(self) -> dict[str, Topic]:
        if self._first is None:
            raise BrokerUnreachable("nobody")
        return {"t": Topic("id of t", {"0": self._first}, {"0": 10})}


def streaming(root: Path, first: int | None = 0, kafka: KafkaSettings | None = None) -> Streaming:
    lake = open_lake(root)
    opened = OpenLake.of(lake, Settings(lake={"path": str(root)}, kafka=kafka or KafkaSettings()))  # type: ignore[arg-type]
    unit = ingest_unit(lake, 1, {"bronze_events": pa.table({"x": range(5)})}, records=5)
    opened.units.manifests.commit(unit)
    opened.units.committer.apply(unit)
    status, stop = Status(lake, opened.settings.layout), threading.Event()
    disk = DiskSpaceGuard(lake, 1, status, stop)
    run = RunContext(status, disk, stop, threading.Lock())
    ingest = Ingest(opened, None, run, None)  # type: ignore[arg-type]
    brokers: Any = Brokers(first)
    topic_check = TopicCheck(opened, brokers)
    sizes = RecordSizes(1, 1)
    return Streaming(None, opened, ingest, topic_check, run, True, sizes)  # type: ignore[arg-type]


def handle(query: Streaming, text: str, now: float = 0.0) -> str:
    """What the status says."""
    query._handle_query_end(StreamingQueryException(text), now)
    return str(query._status.value["reason"])


def test_a_loss_that_is_none_does_not_blame_the_broker(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    for query._outcome in (
        None,
        ReadFailed(ReadFailure.LOST, "t/0 at 6", []),
        ReadFailed(ReadFailure.BEHIND, "t/0 at 6", []),
    ):
        assert handle(query, LOST).startswith("Spark missed records, but Kafka has all that were not ingested")
        with pytest.raises(UnreachableError, match="Spark missed records"):
            handle(query, LOST, 601)


@pytest.mark.parametrize("why", [ReadFailure.LOST, ReadFailure.BEHIND])
def test_a_batch_that_kafka_does_not_have_is_planned_anew(tmp_path: Path, why: ReadFailure) -> None:
    query = streaming(tmp_path)
    planned = query._checkpoint / "offsets" / "1"
    planned.parent.mkdir(parents=True)
    planned.write_text("a batch")
    query._outcome = ReadFailed(why, "t/0 at 6 of 5 to 10: the partition ends there", [])
    handle(query, "of Spark's own")
    assert not query._checkpoint.exists()


def test_a_loss_is_one_when_the_brokers_say_so(tmp_path: Path) -> None:
    query = streaming(tmp_path, first=7)
    for query._outcome in (None, ReadFailed(ReadFailure.LOST, "t/0 at 6", [])):
        with pytest.raises(ContractError, match=r"t/0 5 to 7 \(expired\)"):
            handle(query, LOST)


def test_silence_is_waited_for_with_patience(tmp_path: Path) -> None:
    query = streaming(tmp_path, first=None)
    for text in (LOST, SILENT):
        assert "does not answer" in handle(query, text)
        with pytest.raises(UnreachableError, match="does not answer, for 601 s"):
            handle(query, text, 601)


def test_a_worker_that_gets_no_answer_waits_with_the_same_patience(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    query._outcome = ReadFailed(
        ReadFailure.SILENT, "t/0 at 6 of 5 to 10: no answer for 60 s", [(-195, "connection refused")]
    )
    assert "does not answer" in handle(query, "of Spark's own")
    with pytest.raises(UnreachableError, match="t/0 at 6 of 5 to 10: no answer for 60 s: connection refused"):
        handle(query, "of Spark's own", 601)


def test_a_worker_that_is_refused_names_the_settings(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    query._outcome = ReadFailed(
        ReadFailure.SILENT, "t/0 at 6", [(KafkaError._AUTHENTICATION, "SASL authentication error")]
    )
    assert "refuses access: SASL authentication error: check kafka.sasl_mechanism" in handle(query, "")
    with pytest.raises(ConfigurationError, match=r"kafka\.sasl_password_file"):
        handle(query, "", ACCESS_DENIED_TIMEOUT_S + 1)


def test_a_refusal_is_waited_for_a_moment(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    assert "refuses access: TopicAuthorizationException: Not authorized" in handle(query, REFUSED)
    with pytest.raises(ConfigurationError, match="Not authorized"):
        handle(query, REFUSED, ACCESS_DENIED_TIMEOUT_S + 1)


@pytest.mark.parametrize("said", ["Failed to create new KafkaAdminClient", SILENT])
def test_where_tokens_are_used_the_brokers_are_asked_why_nobody_answers(tmp_path: Path, said: str) -> None:
    query = streaming(tmp_path, kafka=OAUTH)
    brokers: Any = query._topic_check._topics
    assert "does not answer" in handle(query, said, ACCESS_DENIED_TIMEOUT_S + 1)
    brokers.refused = "no token (invalid_client)"
    assert "refuses access: no token (invalid_client)" in handle(query, said)
    with pytest.raises(ConfigurationError, match="invalid_client"):
        handle(query, said, ACCESS_DENIED_TIMEOUT_S + 1)


def test_after_a_refusal_nobody_goes_on_with_the_old_login(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    brokers: Any = query._topic_check._topics
    assert "does not answer" in handle(query, SILENT, ACCESS_DENIED_TIMEOUT_S + 1)
    assert brokers.logins == 0
    handle(query, REFUSED)
    assert brokers.logins == 1


def test_a_refusal_in_the_first_moment_after_an_outage_is_waited_for_too(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    handle(query, SILENT)
    assert "refuses access" in handle(query, REFUSED, 200)
    handle(query, SILENT, 220)
    assert "refuses access" in handle(query, REFUSED, 240)
    with pytest.raises(ConfigurationError, match="Not authorized"):
        handle(query, REFUSED, 241 + ACCESS_DENIED_TIMEOUT_S)


def test_a_bug_in_a_batch_names_the_batch(tmp_path: Path) -> None:
    query = streaming(tmp_path)
    with pytest.raises(StreamingQueryException):
        handle(query, "of Spark's own")
    query._outcome = KeyError("nobody thought of this")
    query._ingest.batch_description = "batch of t/0 5 to 10, try 1"
    with pytest.raises(BrokenError, match=r"failed on the batch of t/0 5 to 10, try 1 .KeyError"):
        handle(query, "of Spark's own")


def test_a_batch_is_named_by_what_it_takes() -> None:
    start = {"t": {"0": 5, "1": 7}}
    assert describe_range(start, {"t": {"0": 9, "1": 7, "2": 1}}) == "t/0 5 to 9, t/2 0 to 1"
    many = describe_range({}, {"t": {str(p): 1 for p in range(30)}})
    assert (many.count(" to "), many.endswith("and 10 more")) == (20, True)


def test_partitions_that_the_settings_leave_out_have_no_beginning(tmp_path: Path) -> None:
    query = streaming(tmp_path, kafka=KafkaSettings(starting_offsets="latest", partitions="0"))
    query._manifests.begin({"t": {"0": 3, "1": 4}}, {"t": "id of t"})
    assert query._beginning({"t": Topic("id of t", {"0": 0}, {"0": 10})}) == {"t": {"0": 3}}
