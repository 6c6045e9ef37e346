"""Finds offset ranges that Kafka deleted before they were ingested, and records them once a person accepts the loss.

An accepted loss is a unit: it writes the ranges to `lost_events` and moves the ingested end past them; the next batch
continues there, and nothing else is skipped.

The reasons: docs/decisions/loss.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import pyarrow as pa

from spark_app.lake.delta.manifest import Manifest
from spark_app.model.errors import ConfigurationError, ContractError, UnreachableError
from spark_app.model.log import log
from spark_app.model.offsets import Offsets
from spark_app.model.record_schemas import TIMESTAMP
from spark_app.model.reports import Report
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.topics import UNANSWERED, BrokerAccessDenied, Topic, Topics
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.spark import checkpoint

MOST_NAMED = 20
LOOKS, LOOK_EVERY_S = 4, 1.0
LOST_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),  # excluded; NULL: the end of the topic is unknown
        ("reason", pa.string()),
        ("accepted_at", TIMESTAMP),
        ("unit", pa.int64()),
    ]
)


class Reason(StrEnum):
    """Why a range cannot be ingested."""

    EXPIRED = "expired"  # deleted by retention or by a person
    MADE_AGAIN = "made_again"  # the topic was deleted and recreated
    GONE = "gone"  # the partition does not exist any more
    TRUNCATED = "truncated"  # ingested, but the log now ends before it: new records would reuse ingested offsets


@dataclass(frozen=True)
class Gap:
    """Offsets from `first` to `end` (excluded; None = unknown) of a partition that can never be ingested."""

    topic: str
    topic_id: str
    partition: int
    first: int
    end: int | None
    reason: Reason

    def __str__(self) -> str:
        end = "unknown" if self.end is None else self.end
        return f"{self.topic}/{self.partition} {self.first} to {end} ({self.reason.value.replace('_', ' ')})"


def search(last: Manifest | None, topics: Topics) -> dict[str, Topic]:
    """The current topics, for `find_gaps`. A broker that has just started may report too low an end, so a truncation
    must be reported several times in a row.

    Raises:
        BrokerUnreachable, TopicMissing, BrokerAccessDenied
    """
    for _ in range(LOOKS):
        now = topics.look()
        if all(gap.reason != Reason.TRUNCATED for gap in find_gaps(last, now)):
            break
        time.sleep(LOOK_EVERY_S)
    return now


def find_gaps(last: Manifest | None, now: Mapping[str, Topic]) -> list[Gap]:
    """The ranges that are missing after the last unit that moved the offsets. Topics that the unit does not name are
    new."""
    if last is None:
        return []
    ids, gaps = last.source["topic_ids"], []
    for name, ends in last.source["end"].items():
        found = now.get(name)
        if found is not None and found.id == ids.get(name, found.id):
            gaps += _gaps_within(name, ends, found)
        else:
            gaps += [Gap(name, ids[name], int(p), offset, None, Reason.MADE_AGAIN) for p, offset in ends.items()]
            gaps += _gaps_within(name, {}, found) if found else []
    return sorted(gaps, key=lambda gap: (gap.topic, gap.partition, gap.first))


def _gaps_within(name: str, ends: Mapping[str, int], topic: Topic) -> list[Gap]:
    gaps = []
    for partition in ends.keys() | topic.first.keys():
        offset, number = ends.get(partition, 0), int(partition)
        if partition not in topic.first:
            gaps.append(Gap(name, topic.id, number, offset, None, Reason.GONE))
        elif topic.first[partition] > offset:
            gaps.append(Gap(name, topic.id, number, offset, topic.first[partition], Reason.EXPIRED))
        elif topic.end[partition] < offset:
            gaps.append(Gap(name, topic.id, number, topic.end[partition], offset, Reason.TRUNCATED))
    return gaps


def moved_partition(last: Manifest | None, now: Mapping[str, Topic], kafka: KafkaSettings) -> str | None:
    """What is wrong if the settings name other partitions than the lake has ingested before; None if they do not."""
    if last is None:
        return None
    before = KafkaSettings(partitions=last.source.get("partitions", ""))
    remedy = "a lake keeps its partitions: set it as it was, or start a new lake"
    for name, ends in last.source["end"].items():
        numbers = sorted(map(int, now[name].first)) if name in now else []
        left = [p for p in sorted(map(int, ends)) if not kafka.includes(p)]
        more = [p for p in numbers if str(p) not in ends and not before.includes(p)]
        if left:
            missed = f"{name}/{left[0]}, which {kafka.partitions} leaves out"
            return f"kafka.partitions: the lake has records of {missed}; {remedy}"
        if more:
            return f"kafka.partitions was {before.partitions}, so the lake never took {name}/{more[0]}; {remedy}"
    return None


def describe(gaps: list[Gap]) -> str:
    """The missing ranges and the remedy on one line."""
    named = ", ".join(map(str, gaps[:MOST_NAMED]))
    named += f" and {len(gaps) - MOST_NAMED} more ranges" if len(gaps) > MOST_NAMED else ""
    if any(gap.reason == Reason.TRUNCATED for gap in gaps):
        what = "Kafka's log ends before offsets that were already ingested, so new records would reuse these offsets"
        return f"{what}: {named}. Start a new lake: ./scripts/run --fresh keeps the old one"
    again = sorted({gap.topic for gap in gaps if gap.reason == Reason.MADE_AGAIN})
    why = f" (topic {', '.join(again)} was deleted and recreated, or kafka.brokers is another Kafka)" if again else ""
    remedy = "start once with `run --accept-loss`: it lists them in lost_events and continues after them"
    return f"Kafka no longer has records that were not ingested{why}: {named}. Restore them, or {remedy}"


def accept(opened: OpenLake, gaps: list[Gap], now: Mapping[str, Topic]) -> None:
    """Record the ranges and continue after them. The checkpoint is moved away first; it is created again from the
    manifests whether or not this unit is committed.

    Raises:
        ContractError: a range cannot be skipped.
    """
    last = opened.units.manifests.last_ingest
    if last is None or not gaps:
        return
    if any(gap.reason == Reason.TRUNCATED for gap in gaps):
        raise ContractError(describe(gaps))
    if checkpoint.is_there(opened.lake):
        checkpoint.set_aside(opened.lake)
    lost = opened.settings.tables.lost
    rows = _rows(gaps, opened.units.manifests.last + 1)
    opened.commit(Report(files={lost: [opened.units.write(lost, rows)]}), "loss", _source(last, gaps, now))
    log.warning("loss accepted", unit=opened.units.manifests.last, ranges=[str(gap) for gap in gaps])


def count(opened: OpenLake) -> dict[str, int]:
    """The accepted losses so far: number of ranges, and number of offsets in ranges with a known end."""
    table = opened.units.committer.tables.get(opened.settings.tables.lost)
    rows = [] if table is None else table.to_pyarrow_table(columns=["first", "end"]).to_pylist()
    return {"ranges": len(rows), "offsets": sum(row["end"] - row["first"] for row in rows if row["end"] is not None)}


def _rows(gaps: Iterable[Gap], unit: int) -> pa.Table:
    accepted = {"accepted_at": int(time.time() * 1_000_000), "unit": unit}
    return pa.Table.from_pylist([asdict(gap) | accepted for gap in gaps], LOST_SCHEMA)


def _source(last: Manifest, gaps: Iterable[Gap], now: Mapping[str, Topic]) -> dict[str, object]:
    """The manifest's source: the ingested end moves past the gaps, and stays where it was everywhere else."""
    made_again = {gap.topic for gap in gaps if gap.reason == Reason.MADE_AGAIN}
    end: Offsets = {}
    for name, ends in last.source["end"].items():
        first = now[name].first
        reached = {} if name in made_again else ends
        end[name] = {p: max(reached.get(p, offset), offset) for p, offset in first.items()}
    topic_ids = {name: now[name].id for name in end}
    partitions = {"partitions": last.source["partitions"]} if "partitions" in last.source else {}
    return partitions | {"start": last.source["end"], "end": end, "topic_ids": topic_ids}


class TopicCheck:
    """Checks that Kafka still has every record after the last ingested offset: at the start, after each job, and when
    Spark reports missing records. Each method may also raise `topics.UNANSWERED`."""

    def __init__(self, opened: OpenLake, topics: Topics):
        self._opened = opened
        self._topics = topics

    def search(self) -> dict[str, Topic]:
        """The current topics with their offsets."""
        return search(self._opened.units.manifests.last_ingest, self._topics)

    def check(self, now: Mapping[str, Topic], accept_loss: bool) -> None:
        """Compare the current topics with the ingested offsets; an accepted loss is recorded.

        Raises:
            ContractError: records were lost before they were ingested, and the loss is not accepted.
            ConfigurationError: the settings no longer name a topic or a partition of the lake.
        """
        last = self._opened.units.manifests.last_ingest
        if moved := moved_partition(last, now, self._opened.settings.kafka):
            raise ConfigurationError(moved)
        ends = last.source["end"].keys() if last else now.keys()
        missing = ends - now.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise ConfigurationError(
                f"kafka.topic: the lake has records of {names}: add it to the setting, or start a new lake"
            )
        gaps = find_gaps(last, now)
        if gaps and not accept_loss:
            raise ContractError(describe(gaps))
        accept(self._opened, gaps, now)
        if not any(topic.first for topic in now.values()):
            partitions = self._opened.settings.kafka.partitions
            raise ConfigurationError(f"kafka.partitions: no topic has one of the partitions {partitions}")
        if any(offset for name in now.keys() - ends for offset in now[name].first.values()):
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
        gaps = find_gaps(self._opened.units.manifests.last_ingest, self.search())
        if gaps:
            raise ContractError(describe(gaps))
