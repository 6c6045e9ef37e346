"""What Kafka says of the topics: their ids, and where each partition begins and ends. One connection, kept open."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_app.kafka import broker_access
from spark_app.kafka.client import ANSWER_S, client_options, silent
from spark_app.model.errors import ConfigurationError
from spark_app.settings.connections import KafkaSettings

SPECS: Any = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]


class BrokerUnreachable(Exception):
    """No broker answered."""


class TopicMissing(Exception):
    """The brokers answer, but have no such topic, perhaps not yet."""


class BrokerAccessDenied(Exception):
    """The brokers answer, but do not let us in: login, certificate, protocol or ACLs. Names the settings."""


UNANSWERED = (BrokerUnreachable, TopicMissing, BrokerAccessDenied)


@dataclass(frozen=True)
class Topic:
    """A topic as the brokers have it.

    Attributes:
        id: Kafka's own: a topic that is deleted and made again has another.
        first: partition -> offset of the oldest record that is still there.
        end: partition -> offset behind the newest record.
    """

    id: str
    first: Mapping[str, int]
    end: Mapping[str, int]


class Topics:
    """Asks about the topics of the settings."""

    def __init__(self, kafka: KafkaSettings):
        self._kafka = kafka
        self._client: AdminClient | None = None
        self._said: deque[KafkaError] = deque(maxlen=20)

    def ids(self) -> dict[str, str]:
        """Topic -> id, in one request: cheap enough for every batch.

        Raises:
            BrokerUnreachable, TopicMissing, AccessRefused
            ConfigurationError: Kafka's client does not take the settings.
        """
        return {name: str(found.topic_id) for name, found in self._ask(self._describe).items()}

    def look(self) -> dict[str, Topic]:
        """All that is known of the topics.

        Raises:
            BrokerUnreachable, TopicMissing, AccessRefused
        """
        found: dict[str, Topic] = self._ask(self._look)
        return found

    def log_in_again(self) -> None:
        """At the next question: a client that was let in may go on for long, by a login that is refused by now."""
        self._client = None

    def _look(self, client: AdminClient) -> dict[str, Topic]:
        topics = self._describe(client)
        partitions = [TopicPartition(name, p.id) for name, found in topics.items() for p in found.partitions]
        bounds = [_offsets(client, partitions, spec) for spec in SPECS]
        return {name: Topic(str(topic.topic_id), *(bound[name] for bound in bounds)) for name, topic in topics.items()}

    def _describe(self, client: AdminClient) -> dict[str, Any]:
        futures = client.describe_topics(TopicCollection(self._kafka.topics), request_timeout=ANSWER_S)
        return {topic: future.result() for topic, future in futures.items()}

    def _ask(self, ask: Any) -> Any:
        try:
            self._open().poll(0)  # forgets what was said since the last time
            return ask(self._open())
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(f"there is no topic {self._kafka.topic}") from None
            self._open().poll(0)  # calls back with what was said meanwhile
            self._client = None  # the next one reads the password and the addresses again
            refused = broker_access.mismatch(self._kafka) or broker_access.refusal([reason, *self._said], self._kafka)
            if refused:
                raise BrokerAccessDenied(refused) from None
            raise BrokerUnreachable(
                broker_access.words(reason) + broker_access.no_token_note(self._said, self._kafka)
            ) from None

    def _open(self) -> AdminClient:
        if self._client is None:
            self._said.clear()
            options = client_options(self._kafka) | {"error_cb": self._said.append}
            try:
                self._client = AdminClient(options, logger=silent())
            except KafkaException as error:  # it has asked nobody yet
                raise ConfigurationError(f"kafka: {error.args[0].str()}: check the settings in [kafka]") from None
        return self._client


def _offsets(client: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[str, dict[str, int]]:
    answers = client.list_offsets(dict.fromkeys(partitions, spec), request_timeout=ANSWER_S) if partitions else {}
    found: dict[str, dict[str, int]] = {}
    for partition, answer in answers.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = answer.result().offset
    return found
