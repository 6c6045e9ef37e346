"""Reads the topics' ids and the first and last offset of each partition, over one connection that stays open.

Finds transactions that stay open, too: a read_committed consumer gets no record after one, and no error, because the
last stable offset does not move, and lag is counted only up to it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.model.text import near
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka import broker_access
from spark_app.sources.kafka.client import ANSWER_S, client_options, silent

SPECS: Any = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]


class BrokerUnreachable(Exception):
    """No broker responded."""


class TopicMissing(Exception):
    """The brokers respond, but do not have the topic (yet)."""


class BrokerAccessDenied(Exception):
    """The brokers respond but deny access: login, certificate, protocol or ACLs. The text names the settings."""


UNANSWERED = (BrokerUnreachable, TopicMissing, BrokerAccessDenied)


@dataclass(frozen=True)
class Topic:
    """A topic in Kafka.

    Attributes:
        id: Kafka's topic id; a topic that is deleted and recreated gets a new one.
        first: partition -> offset of the oldest record that still exists.
        end: partition -> offset after the newest record.
    """

    id: str
    first: Mapping[str, int]
    end: Mapping[str, int]


class Topics:
    """Reads the state of the configured topics."""

    def __init__(self, kafka: KafkaSettings):
        self._kafka = kafka
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._said: deque[KafkaError] = deque(maxlen=20)

    def ids(self) -> dict[str, str]:
        """Topic -> id, in one request, which is cheap enough for every batch.

        Raises:
            BrokerUnreachable, TopicMissing, BrokerAccessDenied
            ConfigurationError: Kafka's client does not accept the settings.
        """
        return {name: str(found.topic_id) for name, found in self._ask(self._describe).items()}

    def partitions(self) -> dict[str, set[str]]:
        """Topic -> its partitions that belong to the lake.

        Raises:
            BrokerUnreachable, TopicMissing, BrokerAccessDenied
            ConfigurationError: as `ids`.
        """
        return {name: self._taken(found) for name, found in self._ask(self._describe).items()}

    def look(self) -> dict[str, Topic]:
        """Topic -> its id and offsets.

        Raises:
            BrokerUnreachable, TopicMissing, BrokerAccessDenied
            ConfigurationError: as `ids`.
        """
        found: dict[str, Topic] = self._ask(self._look)
        return found

    def log_in_again(self) -> None:
        """Open a new connection at the next request: an open one may continue for long with a login that is no longer
        valid."""
        self._client = None

    def _look(self, client: AdminClient) -> dict[str, Topic]:
        topics = self._describe(client)
        partitions = [TopicPartition(name, int(p)) for name, found in topics.items() for p in self._taken(found)]
        bounds = [_offsets(client, partitions, spec) for spec in SPECS]
        return {
            name: Topic(str(topic.topic_id), *(bound.get(name, {}) for bound in bounds))
            for name, topic in topics.items()
        }

    def _taken(self, topic: Any) -> set[str]:
        return {str(p.id) for p in topic.partitions if self._kafka.includes(p.id)}

    def _describe(self, client: AdminClient) -> dict[str, Any]:
        futures = client.describe_topics(TopicCollection(self._kafka.topics), request_timeout=ANSWER_S)
        return {topic: future.result() for topic, future in futures.items()}

    def _ask(self, ask: Any) -> Any:
        with self._lock:  # the threads of batches and of the app ask
            return self._request_unlocked(ask)

    def _request_unlocked(self, ask: Any) -> Any:
        try:
            self._open().poll(0)  # empties the client's queue of events
            return ask(self._open())
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                there = self._open().list_topics(timeout=ANSWER_S).topics
                raise TopicMissing(f"there is no topic {self._kafka.topic}; {near(self._kafka.topic, there)}") from None
            self._open().poll(0)  # delivers the errors of this request to `_said`
            self._client = None  # a new client reads the password and the addresses again
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
            except KafkaException as error:  # the client has sent no request yet, so a setting is wrong
                raise ConfigurationError(f"kafka: {error.args[0].str()}: check the settings in [kafka]") from None
        return self._client


def _offsets(client: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[str, dict[str, int]]:
    answers = client.list_offsets(dict.fromkeys(partitions, spec), request_timeout=ANSWER_S) if partitions else {}
    found: dict[str, dict[str, int]] = {}
    for partition, answer in answers.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = answer.result().offset
    return found


SUSPECT_S = 45.0  # longer than usual transactions; brokers abort one after `transaction.timeout.ms`, often a minute

Key = tuple[str, int]  # topic, partition
Ends = dict[Key, tuple[int, int]]  # -> last stable offset, end of the log


class OpenTransactions:
    """Compares the last stable offset and the end of each partition at each `look`."""

    def __init__(
        self,
        kafka: KafkaSettings,
        ask: Callable[[], Ends] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._kafka = kafka
        self._ask = ask or self._poll_broker
        self._clock = clock
        self._client: AdminClient | None = None
        self._complained = False
        self._stuck: dict[Key, tuple[int, float]] = {}  # -> last stable offset, time since which it has not moved

    def look(self) -> dict[str, int]:
        """ "<topic>/<partition>" -> number of offsets after a transaction that is open for `SUSPECT_S` or longer."""
        now = self._clock()
        open_now = {key: ends for key, ends in self._ask().items() if ends[0] < ends[1]}
        self._stuck = {
            key: old if (old := self._stuck.get(key)) and old[0] == stable else (stable, now)
            for key, (stable, _) in open_now.items()
        }
        return {
            f"{topic}/{partition}": end - stable
            for (topic, partition), (stable, end) in open_now.items()
            if now - self._stuck[topic, partition][1] >= SUSPECT_S
        }

    def _poll_broker(self) -> Ends:
        """The offsets of each partition; empty if no broker responds. Other code reports an unreachable broker; only a
        secret file that cannot be read is logged here."""
        try:
            if self._client is None:
                self._client = AdminClient(client_options(self._kafka), logger=silent())
                self._complained = False
            keys = self._partitions(self._client)
            stable = self._ends(self._client, keys, IsolationLevel.READ_COMMITTED)
            ends = self._ends(self._client, keys, IsolationLevel.READ_UNCOMMITTED)
        except KafkaException:
            self._client = None  # a new client reads the password and the addresses again
            return {}
        except ConfigurationError as error:
            if not self._complained:
                log.warning("the app cannot look for open transactions", reason=str(error))
            self._complained = True
            return {}
        return {key: (stable[key], ends[key]) for key in keys}

    def _partitions(self, client: AdminClient) -> list[Key]:
        topics = client.list_topics(timeout=ANSWER_S).topics
        found = ((name, number) for name in self._kafka.topics if name in topics for number in topics[name].partitions)
        return [key for key in found if self._kafka.includes(key[1])]

    def _ends(self, client: AdminClient, keys: list[Key], isolation: Any) -> dict[Key, int]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*key): latest for key in keys}
        futures = client.list_offsets(wanted, isolation_level=isolation, request_timeout=ANSWER_S)
        return {(at.topic, at.partition): int(future.result().offset) for at, future in futures.items()}
