"""Finds transactions that stay open in Kafka.

A read_committed consumer gets no record after an open transaction, and no error: the last stable offset does not move,
and lag is counted only up to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.client import ANSWER_S, client_options, silent

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
        self._ask = ask or self._ask_broker
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

    def _ask_broker(self) -> Ends:
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
        return [key for key in found if self._kafka.takes(key[1])]

    def _ends(self, client: AdminClient, keys: list[Key], isolation: Any) -> dict[Key, int]:
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*key): latest for key in keys}
        futures = client.list_offsets(wanted, isolation_level=isolation, request_timeout=ANSWER_S)
        return {(at.topic, at.partition): int(future.result().offset) for at, future in futures.items()}
