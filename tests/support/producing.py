"""The records of the demo's producer without Kafka, framed against the client library's own in-memory registry."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pyarrow as pa

from producer.clock import RecordClock
from producer.games import make_events
from producer.patience import StopSignal
from producer.publish import Encoders, Source
from producer.schemas import PROTO_FOLDER, available_versions
from producer.settings import Run, read_command
from producer.subject import Subject
from spark_app.model.catalog import Decodable
from spark_app.model.record_schemas import SOURCE_SCHEMA
from tests.support.protos import compile_text

START = "2026-01-01T00:00:00Z"
NEWEST = available_versions(PROTO_FOLDER)[-1]
Record = tuple[bytes | None, dict[str, Any]]


class Lab:
    """A run without Kafka: its records and what the registry knows."""

    def __init__(self, *arguments: str) -> None:
        command = read_command(["run", "--start-time", START, *arguments])
        assert isinstance(command, Run)
        assert command.start_time
        self.settings = command.model_copy(update={"registry": "mock://"})
        self.subject = Subject(self.settings, StopSignal())
        encoders = Encoders(self.settings, self.subject)
        self.source = Source(self.settings, encoders, RecordClock(command.start_time, command.rate))
        self.events = make_events(command.seed, command.game_names, command.gamers, NEWEST - 1)
        self.sent = 0

    def take(self, count: int) -> list[Record]:
        records = [self.source.make(self.sent + n, event) for n, event in enumerate(islice(self.events, count))]
        self.sent += count
        return records

    def registered(self) -> list[int]:
        return sorted(self.subject.client.get_versions(self.subject.name))


def schemas_of_demo() -> list[Decodable]:
    """All versions of the demo's schema, with the ids that the registry of a `Lab` gives them."""
    files = [PROTO_FOLDER / f"v{number}" / "game_event.proto" for number in range(1, NEWEST + 1)]
    return [compile_text(file.read_text(), schema_id=number) for number, file in enumerate(files, 1)]


def times(count: int) -> pa.Array:
    """Kafka timestamps for so many records: each is a little later than the events of a short `Lab`."""
    moment = pa.scalar(datetime.fromisoformat(START) + timedelta(minutes=5))
    return pa.repeat(moment, count).cast(SOURCE_SCHEMA.field("timestamp").type)
