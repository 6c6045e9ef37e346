"""Transactions that are left open in Kafka. Behind one no read_committed consumer gets anything, and nothing says so:
the last stable offset stands still, and lag is counted up to there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_app.kafka.client import ANSWER_S, client_options, silent
from spark_app.model.errors import ConfigurationError
from spark_app.ops.log import log
from spark_app.settings.connections import KafkaSettings

SUSPECT_S = 45.0  # a transaction takes less; brokers end one after `transaction.timeout.ms`, mostly a minute or more

Key = tuple[str, int]  # topic, partition
Ends = dict[Key, tuple[int, int]]  # -> last stable offset, end of the log


class OpenTransactions:
    """Looks at the ends of the partitions, again and again."""

    def __init__(
        self,
        kafka: KafkaSettings,
        ask: Callable[[], Ends] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._kafka = kafka
        self._ask = ask or self._ask_broker
        self._clock = clock
        self._client: AdminClient | None = None
        self._complained = False
        self._stuck: dict[Key, tuple[int, float]] = {}  # -> last stable offset, since when it stands still

    def look(self) -> dict[str, int]:
        """ "<topic>/<partition>" -> offsets behind a transaction that has been open for long."""
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

    def _ask_broker(self) -> Ends:
        """Nothing when there is no answer: that is said elsewhere, but for a file that cannot be read."""
        try:
            if self._client is None:
                self._client = AdminClient(client_options(self._kafka), logger=silent())
                self._complained = False
            keys = self._partitions(self._client)
            stable = self._ends(self._client, keys, IsolationLevel.READ_COMMITTED)
            ends = self._ends(self._client, keys, IsolationLevel.READ_UNCOMMITTED)
        except KafkaException:
            self._client = None  # the next one reads the password and the addresses again
            return {}
        except ConfigurationError as error:
            if not self._complained:
                log.warning("the app cannot look for open transactions", reason=str(error))
            self._complained = True
            return {}
        return {key: (stable[key], ends[key]) for key in keys}

    def _partitions(self, client: AdminClient) -> list[Key]:
        topics = client.list_topics(timeout=ANSWER_S).topics
        return [(name, number) for name in self._kafka.topics if name in topics for number in topics[name].partitions]

    def _ends(self, client: AdminClient, keys: list[Key], isolation: Any) -> dict[Key, int]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*key): latest for key in keys}
        futures = client.list_offsets(wanted, isolation_level=isolation, request_timeout=ANSWER_S)
        return {(at.topic, at.partition): int(future.result().offset) for at, future in futures.items()}
