"""Frames events. Input: an event and a schema version. Output: the value that the official serializer made."""

from collections.abc import Sequence
from typing import Any, cast

from confluent_kafka.schema_registry import RegisteredSchema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from producer.faults import Edit
from producer.games import Event
from producer.schemas import SchemaVersion, look_up


class Encoder:
    """Frames the events of one topic in one schema version, which must be registered already."""

    def __init__(self, topic: str, version: SchemaVersion, client: SchemaRegistryClient) -> None:
        # The constructor of a message class takes fields by name, but its stub does not declare that.
        self._message = cast(Any, version.message)
        self._names = tuple(f"col_custom_{k}" for k in range(1, version.custom + 1))
        self._context = SerializationContext(topic, MessageField.VALUE)
        self._serialize = ProtobufSerializer(
            self._message,
            cast(Any, Lookup(client, version)),
            {"auto.register.schemas": False, "subject.name.strategy.type": "TOPIC"},
        )

    def encode(self, event: Event, now_us: int, edits: Sequence[Edit] = ()) -> bytes:
        """The event's frame, sent at `now_us` microseconds since 1970. `edits` change the message before it is
        framed."""
        details = dict(zip(self._names, event.details, strict=False))
        message = self._message(game_name=event.game, gamer_id=event.gamer_id, device_id=event.device_id, **details)
        seconds, micros = divmod(now_us - event.age_us, 1_000_000)
        message.event_timestamp.seconds = seconds
        message.event_timestamp.nanos = micros * 1000
        for edit in edits:
            edit(message)
        return cast(bytes, self._serialize(message, self._context))


class Lookup:
    """The registry as the serializer asks it. The serializer knows only the descriptor, so some registries would not
    find the text that is registered."""

    def __init__(self, client: SchemaRegistryClient, version: SchemaVersion) -> None:
        self._client = client
        self._version = version

    def lookup_schema(self, subject: str, *_: Any, **__: Any) -> RegisteredSchema:
        """The version as it is registered. Raises SchemaRegistryError if it is not."""
        found = look_up(self._client, subject, self._version)
        if found is None:
            raise SchemaRegistryError(404, 40403, f"v{self._version.number} is not registered under {subject}")
        return found
