"""The loop of a run: makes events, chooses a version, frames, sometimes corrupts, and sends, until stopped or done."""

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

from producer.clock import Clock, Pace, RecordClock, SystemClock
from producer.delivery import Delivery
from producer.encoder import Encoder
from producer.errors import UnreachableError
from producer.faults import FAULTS, draw_fault
from producer.games import Event, make_events
from producer.patience import StopSignal
from producer.plants import PLANTS, draw_plant
from producer.progress import Progress, print_line
from producer.schemas import available_versions, compile_version
from producer.settings import Run
from producer.subject import Subject
from producer.timeline import Timeline
from producer.topic import Topic


class Encoders:
    """One encoder per version. It is created, and its schema registered, when the version is first sent."""

    def __init__(self, settings: Run, subject: Subject) -> None:
        self._settings = settings
        self._subject = subject
        self._ready: dict[int, Encoder] = {}

    def get(self, window: tuple[int, ...], number: int) -> Encoder:
        """The encoder of one version of the window. Registers the window up to this version, oldest first."""
        if number not in self._ready:
            self.prepare([version for version in window if version <= number], self._settings.patience)
        return self._ready[number]

    def prepare(self, numbers: Sequence[int], seconds: float) -> None:
        """Register missing versions in this order, each after all versions before it; waits up to `seconds` for the
        registry."""
        new = [number for number in numbers if number not in self._ready]
        for number in (*self._subject.skipped(new[0], seconds), *new) if new else ():
            version = compile_version(number, self._settings.proto)
            schema_id, subject_version = self._subject.register(version, seconds)
            self._ready[number] = Encoder(self._settings.topic, version, self._subject.client)
            print_line(f"v{number} is version {subject_version} of {self._subject.name}, schema id {schema_id}")


class Source:
    """The records of a run in order. They depend on the settings and the clock only, not on delivery."""

    def __init__(self, settings: Run, encoders: Encoders, clock: Clock) -> None:
        self._settings = settings
        self._encoders = encoders
        self._clock = clock
        self.timeline = Timeline(settings.game_names, settings.schema_version, settings.num_versions, settings.bumps)
        # Each kind of choice has its own random generator, so that more draws of one kind do not change the others.
        self._version_dice = Random(f"{settings.seed} versions")
        self._choice_dice = Random(f"{settings.seed} poison")
        self._fault_dice = Random(f"{settings.seed} fault bytes")
        self._plant_dice = Random(f"{settings.seed} plants")

    def make(self, record: int, event: Event) -> tuple[bytes | None, dict[str, Any]]:
        """The value of one record, and its label for the acknowledgement: game and kind of rule failure, or kind of
        fault, and version."""
        self.timeline.advance(record, self._clock.elapsed(record))
        window = self.timeline.window(event.game)
        version = self._version_dice.choice(window)
        kind = draw_fault(self._choice_dice, self._settings.poison, self._settings.kinds)
        planted = draw_plant(self._plant_dice, self._settings.plants)
        encoder = self._encoders.get(window, version)
        now_us = self._clock.now_us(record)
        if kind is None:
            edits = (PLANTS[planted].edit,) if planted else ()
            label = {"game": event.game, "poison": None, "planted": planted, "version": version}
            return encoder.encode(event, now_us, edits), label
        fault = FAULTS[kind]
        value: bytes | None = encoder.encode(event, now_us, (fault.edit,) if fault.edit else ())
        if fault.mutate and value is not None:
            value = fault.mutate(value, self._fault_dice)
        return value, {"game": None, "poison": kind, "planted": None, "version": version}


def publish(settings: Run, stop: StopSignal) -> None:
    """Send events until `settings.records` are acknowledged or a stop is requested.

    Raises ConfigurationError, and UnreachableError (also if records are unacknowledged at the end).
    """
    Topic(settings, stop).require()
    encoders = Encoders(settings, Subject(settings, stop))
    clock = RecordClock(settings.start_time, settings.rate) if settings.start_time else SystemClock()
    source = Source(settings, encoders, clock)
    encoders.prepare(source.timeline.window(settings.game_names[0]), settings.wait)
    progress = Progress()
    try:
        with Delivery(settings, progress, stop) as delivery:
            send_all(settings, source, delivery, stop)
            delivery.drain()
    finally:
        if progress.sent:
            progress.report()
    if missing := progress.sent - progress.acknowledged:
        reasons = "; ".join(sorted(progress.reasons)) or "the producer stopped before the broker answered"
        raise UnreachableError(f"{missing} of {progress.sent} records are not acknowledged: {reasons}")


def send_all(settings: Run, source: Source, delivery: Delivery, stop: StopSignal) -> None:
    """The loop itself: wait for the pace, make the record, send it."""
    # The columns of the newest version, so that a seed gives the same events whichever versions are sent.
    columns = compile_version(max(available_versions(settings.proto)), settings.proto).custom
    events = make_events(settings.seed, settings.game_names, settings.gamers, columns)
    pace = Pace(settings.rate)
    for record, event in enumerate(islice(events, settings.records or None)):
        while (delay := pace.delay()) and not stop.requested:
            delivery.serve(delay)
        if stop.requested:
            return
        value, label = source.make(record, event)
        delivery.send(event.gamer_id.encode(), value, label)
        pace.step()
