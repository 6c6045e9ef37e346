"""A broker in memory with transactions, as far as a sink of Kafka needs one, in place of confluent-kafka's clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

Record = tuple[bytes | None, bytes | None, dict[str, bytes]]  # key, value, headers


def failure(code: int, **more: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "the broker says no", **more))


class Broker:
    """
    Attributes:
        records: topic -> what a reader of committed records sees.
        metadata: (group, topic) -> what was committed last.
        fails: called with the step of a transaction before it is made; it may raise. After a step it is called with
            `after <step>`.
    """

    def __init__(self, *topics: str):
        self.records: dict[str, list[Record]] = {topic: [] for topic in topics}
        self.metadata: dict[tuple[str, str], str] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self.transactions = 0
        self.fails: Callable[[str], None] = lambda step: None
        self.largest = 1 << 20

    def producer(self, options: dict[str, Any], logger: Any) -> Producer:
        return Producer(self, options["transactional.id"])

    def consumer(self, options: dict[str, Any], logger: Any) -> Any:
        def committed(parts: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
            found = ((part, self.metadata.get((options["group.id"], part.topic))) for part in parts)
            return [part if said is None else TopicPartition(part.topic, 0, 0, said) for part, said in found]

        group = SimpleNamespace(id=options["group.id"])
        return SimpleNamespace(committed=committed, consumer_group_metadata=lambda: group, close=lambda: None)


class Producer:
    def __init__(self, broker: Broker, id: str):
        self._broker = broker
        self._id = id
        self._records: list[tuple[str, Record]] | None = None
        self._metadata: dict[tuple[str, str], str] = {}
        self._commits = False  # a commit without an answer allows nothing else

    def init_transactions(self, timeout: float) -> None:
        self._broker.fails("init")
        self._broker.epochs[self._id] += 1
        self._epoch = self._broker.epochs[self._id]

    def list_topics(self, topic: str, timeout: float) -> Any:
        error = None if topic in self._broker.records else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def begin_transaction(self) -> None:
        assert self._records is None
        self._records, self._metadata = [], {}

    def produce(self, topic: str, value: bytes | None, key: Any, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        assert self._records is not None
        if len(value or b"") > self._broker.largest:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE)
        self._records.append((topic, (key.encode() if isinstance(key, str) else key, value, dict(headers))))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        done = 0
        for message in messages:
            try:
                self.produce(topic, message["value"], message["key"])
                done += 1
            except KafkaException as error:
                message["_error"] = error.args[0]
        return done

    def send_offsets_to_transaction(self, parts: Sequence[TopicPartition], group: Any, timeout: float) -> None:
        for part in parts:
            assert len(part.metadata) <= 4096
            self._metadata[group.id, part.topic] = part.metadata

    def commit_transaction(self, timeout: float) -> None:
        assert self._records
        if self._epoch != self._broker.epochs[self._id]:
            raise failure(KafkaError._FENCED, fatal=True)
        self._commits = True
        self._broker.fails("commit")
        for topic, record in self._records:
            self._broker.records[topic].append(record)
        self._broker.metadata |= self._metadata
        self._broker.transactions += 1
        self._records = None
        self._broker.fails("after commit")
        self._commits = False

    def abort_transaction(self, timeout: float) -> None:
        if self._commits:
            raise failure(KafkaError._CONFLICT)
        self._records = None

    def purge(self) -> None:
        pass
