"""Audits a lake chunk by chunk, so that memory does not grow with its size.

The reasons: docs/decisions/audit.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from spark_app.audit.broker import Kafka
from spark_app.audit.check_bronze import Acknowledged, check_bronze, read_acks
from spark_app.audit.check_expectations import check_kept_out
from spark_app.audit.check_gold import check_gold
from spark_app.audit.check_quarantine import check_quarantine
from spark_app.audit.check_routes import check_outside, check_pauses, check_routed, check_waiting
from spark_app.audit.check_silver import check_silver
from spark_app.audit.chunk import Chunk, OffsetIndex
from spark_app.audit.expected_rows import ExpectedRows
from spark_app.audit.snapshot import Snapshot
from spark_app.audit.source_files import Files
from spark_app.audit.source_records import Records, Source
from spark_app.audit.verdict import Verdict
from spark_app.lake import sql_tables
from spark_app.model.offsets import Span
from spark_app.settings.models import Settings

RECORDS = 200_000  # of a chunk
VALUE_BYTES = 48 << 20  # of a chunk
PARTITIONS = 16  # of a chunk
SNAPSHOT_TIMEOUT_S = 30.0  # for a moment between two units

GONE = "offsets of {}/{} are no longer in Kafka"
MADE_AGAIN = "topic {topic} was deleted and recreated, or this is another Kafka: its records are compared with bronze"
NO_TOPIC = "Kafka has no topic {topic}: its records in the lake are compared with bronze instead"


def audit(
    settings: Settings,
    acks: Path | None = None,
    source: Source | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verdict:
    """Compare a lake with Kafka, or with the files that it was made of, while the app runs or not.

    Args:
        acks: file in which the producer recorded the acknowledged records.
        source: where the records are read; None = the brokers or the files of the settings.
        progress: called with the number of checked offsets and the number of all offsets.

    Raises:
        ConfigurationError: there is no lake, the acks are invalid, or the brokers deny access.
        UnreachableError: no consistent snapshot within the timeout, a broker did not answer, or an ingested file
            cannot be read.
        ContractError: a table or state file of the lake is damaged.
    """
    began = time.monotonic()
    snapshot = Snapshot.read(settings, SNAPSHOT_TIMEOUT_S)
    known = read_acks(acks) if acks else Acknowledged()
    if source is None and settings.source.kind == "files":
        files = Files(settings)
        verdict = _Auditor(snapshot, files, known, progress).run()
        for words, count in files.unproven().items():
            verdict.note(words, count)
    elif source is not None:
        verdict = _Auditor(snapshot, source, known, progress).run()
    else:
        with closing(Kafka(settings.kafka, settings.run.connect_timeout_s, settings.batch.max_record_bytes)) as kafka:
            verdict = _Auditor(snapshot, kafka, known, progress).run()
    verdict.seconds = time.monotonic() - began
    return verdict


class _Auditor:
    def __init__(self, snapshot: Snapshot, source: Source, acks: Acknowledged, progress: Callable[[int, int], None]):
        self._snapshot = snapshot
        self._source = source
        self._acks = acks
        self._progress = progress
        self._verdict = Verdict(upto=snapshot.upto)
        self._expected = ExpectedRows(snapshot.settings, snapshot.schemas, snapshot.names)
        self._seen: Counter[str] = Counter()

    def run(self) -> Verdict:
        spans = list(self._spans())
        total, done = sum(span.end - span.start for span in spans), 0
        if self._snapshot.assumed:
            self._verdict.note(self._snapshot.assumed)
        for topic in dict.fromkeys(span.topic for span in spans):
            own = [span for span in spans if span.topic == topic]
            there = self._is_there(topic)
            compacted = there and self._source.is_compacted(topic)
            self._verdict.left += self._count_left(topic) if there else 0
            for chunk in self._chunks(own):
                self._check_chunk(chunk, there, compacted)
                done += sum(span.end - span.start for span in chunk)
                self._progress(done, total)
        check_outside(self._snapshot, spans, self._seen, self._verdict)
        check_pauses(self._snapshot, self._verdict)
        check_gold(self._snapshot, self._verdict)
        if sql_tables.names(self._snapshot.lake):
            from spark_app.audit.check_sql import check_sql  # it loads Spark

            check_sql(self._snapshot, self._verdict)
        return self._verdict

    def _spans(self) -> Iterator[Span]:
        for topic, ends in sorted(self._snapshot.end.items()):
            for partition, end in sorted(ends.items(), key=lambda item: int(item[0])):
                start = self._snapshot.start.get(topic, {}).get(partition, 0)
                if start < end:
                    yield Span(topic, int(partition), start, end)

    def _count_left(self, topic: str) -> int:
        ingested = self._snapshot.end[topic]
        return sum(max(end - ingested.get(str(p), 0), 0) for p, end in self._source.ends(topic).items())

    def _is_there(self, topic: str) -> bool:
        """Whether Kafka has the topic under the topic id of the lake."""
        found, known = self._source.topic_id(topic), self._snapshot.topic_ids.get(topic)
        same = found is not None and found == (known or found)
        if not same:
            self._verdict.note((MADE_AGAIN if found else NO_TOPIC).format(topic=topic))
        return same

    def _chunks(self, spans: list[Span]) -> Iterator[list[Span]]:
        """Slices that advance in all partitions of a group together, as ingest did."""
        most = int(min(RECORDS, max(VALUE_BYTES / max(self._snapshot.mean_bytes, 1), 1)))
        for first in range(0, len(spans), PARTITIONS):
            group = spans[first : first + PARTITIONS]
            offsets = sum(span.end - span.start for span in group)
            pieces = -(-offsets // most)
            for number in range(pieces):
                cut = [_slice(span, number, pieces) for span in group]
                yield [span for span in cut if span.start < span.end]

    def _check_chunk(self, spans: list[Span], there: bool, compacted: bool) -> None:
        left = spans
        while left:
            gone = list(self._gone(left, there))
            records, read_spans = self._read(left, gone)
            gone = list(self._gone(left, there))  # records may have expired during the read
            for span in gone if there else []:
                self._verdict.note(GONE.format(span.topic, span.partition), span.end - span.start)
            read = [span for span in read_spans if span.start < span.end]
            slots = OffsetIndex(read, self._snapshot.topic_ids.get(left[0].topic))
            self._compare(slots, records, slots.within(gone) | compacted)
            left = [
                Span(span.topic, span.partition, done.end, span.end)
                for span, done in zip(left, read_spans, strict=True)
                if done.end < span.end
            ]

    def _compare(self, slots: OffsetIndex, records: Records, expired: np.ndarray) -> None:
        """Compare each table with the records, in the order of the stages."""
        chunk = Chunk(self._snapshot, self._expected, self._verdict, slots, records, expired)
        check_bronze(chunk, self._acks)
        absent = check_silver(chunk)
        check_routed(chunk, absent)
        check_quarantine(chunk, absent)
        check_kept_out(chunk, absent.failures)
        check_waiting(chunk, absent)
        self._verdict.records += len(chunk.records)
        self._seen.update({name: len(found.slots) for name, found in chunk.tables.items()})

    def _gone(self, spans: list[Span], there: bool) -> Iterator[Span]:
        """The parts of the spans that Kafka has deleted."""
        for span in spans:
            kept = min(self._source.kept(span.topic, span.partition), span.end) if there else span.end
            if kept > span.start:
                yield Span(span.topic, span.partition, span.start, kept)

    def _read(self, spans: list[Span], gone: list[Span]) -> tuple[Records, list[Span]]:
        """(the records of the spans that Kafka still has, the part of each span that was read)."""
        first = {span.partition: span.end for span in gone}
        wanted = [Span(s.topic, s.partition, first.get(s.partition, s.start), s.end) for s in spans]
        requested = [span for span in wanted if span.start < span.end]
        records, read = self._source.read(requested, VALUE_BYTES * 2) if requested else (Records(), [])
        ends = {span.partition: span.end for span in read}
        return records, [Span(s.topic, s.partition, s.start, ends.get(s.partition, s.end)) for s in spans]


def _slice(span: Span, number: int, pieces: int) -> Span:
    size = span.end - span.start
    low, high = (span.start + size * at // pieces for at in (number, number + 1))
    return Span(span.topic, span.partition, low, high)
