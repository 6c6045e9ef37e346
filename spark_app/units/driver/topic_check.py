"""Checks that Kafka still has every record after the last ingested offset: at the start, after each job, and when Spark
reports missing records."""

from __future__ import annotations

from collections.abc import Mapping

from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError
from spark_app.sources.kafka.topics import UNANSWERED, BrokerAccessDenied, Topic, Topics
from spark_app.units.driver import loss
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.spark import checkpoint


class TopicCheck:
    """Checks the lake's topics. Each method may also raise `topics.UNANSWERED`."""

    def __init__(self, opened: OpenLake, topics: Topics):
        self._opened = opened
        self._topics = topics

    def search(self) -> dict[str, Topic]:
        """The current topics with their offsets."""
        return loss.search(self._opened.units.manifests.last_ingest, self._topics)

    def check(self, now: Mapping[str, Topic], accept_loss: bool) -> None:
        """Compare the current topics with the ingested offsets; an accepted loss is recorded.

        Raises:
            ContractError: records were lost before they were ingested, and the loss is not accepted.
            ConfigurationError: the settings no longer name a topic or a partition of the lake.
        """
        last = self._opened.units.manifests.last_ingest
        if moved := loss.moved_partition(last, now, self._opened.settings.kafka):
            raise ConfigurationError(moved)
        taken = last.source["end"].keys() if last else now.keys()
        missing = taken - now.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise ConfigurationError(
                f"kafka.topic: the lake has records of {names}: add it to the setting, or start a new lake"
            )
        gaps = loss.find_gaps(last, now)
        if gaps and not accept_loss:
            raise ContractError(loss.describe(gaps))
        loss.accept(self._opened, gaps, now)
        if not any(topic.first for topic in now.values()):
            partitions = self._opened.settings.kafka.partitions
            raise ConfigurationError(f"kafka.partitions: no topic has one of the partitions {partitions}")
        if any(offset for name in now.keys() - taken for offset in now[name].first.values()):
            checkpoint.forget(
                self._opened.lake, "a new topic does not start at offset 0, which Spark would report as data loss"
            )

    def added(self, known: Mapping[str, Topic]) -> dict[str, Topic] | None:
        """The topics, if they have got partitions of this lake that Spark does not find by itself; else None.

        Raises:
            BrokerUnreachable, TopicMissing, BrokerAccessDenied
        """
        if not self._opened.settings.kafka.partitions:
            return None
        grown = any(found - known[name].first.keys() for name, found in self._topics.partitions().items())
        return self.search() if grown else None

    def confirm(self, topic_ids: Mapping[str, str]) -> None:
        """Check that the topics still have these ids.

        Raises:
            ContractError: a topic was recreated since the app started, so its offsets name other records.
            UnreachableError: a topic was recreated, but none of its records had been ingested.
        """
        if self._topics.ids() != topic_ids:
            self.refuse()
            names = ", ".join(topic_ids)
            raise UnreachableError(f"topic {names} was recreated: the app exits to start with the new topic")

    def refusal(self) -> str | None:
        """Why the brokers deny access to a client that logs in now; None if they do not."""
        self._topics.log_in_again()
        try:
            self._topics.ids()
        except BrokerAccessDenied as refused:
            return str(refused)
        except UNANSWERED:
            pass
        return None

    def log_in_again(self) -> None:
        """Log in again at the next request."""
        self._topics.log_in_again()

    def refuse(self) -> None:
        """
        Raises:
            ContractError: Kafka has lost offsets; the message names them.
        """
        gaps = loss.find_gaps(self._opened.units.manifests.last_ingest, self.search())
        if gaps:
            raise ContractError(loss.describe(gaps))
