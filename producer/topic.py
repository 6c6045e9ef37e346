"""The topic: created once with partitions and retention, then never changed, so that setup is safe with data."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from producer.errors import ConfigurationError
from producer.patience import StopSignal, T, explain, persist
from producer.settings import Settings

_TIMEOUT_S = 5.0
_QUIET = 0  # librdkafka's own log is off; an error is printed as one line


def client_settings(settings: Settings) -> dict[str, Any]:
    """The settings that every Kafka client of the producer needs."""
    return {"bootstrap.servers": settings.brokers, "client.id": "protolake-producer", "log_level": _QUIET}


class Topic:
    """The producer's topic. Every call waits up to `settings.wait` seconds while the broker is unavailable."""

    def __init__(self, settings: Settings, stop: StopSignal) -> None:
        self._settings = settings
        self._stop = stop
        self._admin = AdminClient(client_settings(settings))

    def partitions(self) -> int:
        """The topic's number of partitions; 0: the topic does not exist."""
        # All topics, because a request for one name makes some brokers create it.
        found = self._persist(lambda: self._admin.list_topics(timeout=_TIMEOUT_S)).topics.get(self._settings.topic)
        return len(found.partitions) if found else 0

    def require(self) -> None:
        """Raises ConfigurationError if the topic does not exist, UnreachableError."""
        if not self.partitions():
            raise ConfigurationError(
                f"PRODUCER_TOPIC: {self._settings.topic} does not exist on {self._settings.brokers}, "
                "create it with python -m producer setup"
            )

    def ensure(self) -> bool:
        """Create the topic unless it exists; returns True if it was created. Raises ConfigurationError,
        UnreachableError."""
        if self.partitions():
            return False
        try:
            self._persist(self._create)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise ConfigurationError(
                f"PRODUCER_TOPIC: broker refuses to create {self._settings.topic}: {explain(error)}"
            ) from None
        return True

    def _create(self) -> None:
        retention = {
            "retention.ms": str(self._settings.retention_hours * 3_600_000),
            "retention.bytes": str(self._settings.retention_bytes),
        }
        topic = NewTopic(self._settings.topic, self._settings.partitions, config=retention)
        # The limit is the request's own: its end is an error of Kafka's, and the call is repeated.
        limits = {"operation_timeout": _TIMEOUT_S, "request_timeout": _TIMEOUT_S * 2}
        self._admin.create_topics([topic], **limits)[self._settings.topic].result()

    def _persist(self, action: Callable[[], T]) -> T:
        return persist(action, f"broker {self._settings.brokers}", self._settings.wait, self._stop)
