"""Finds the message that an index names.

Some writers count the entries of `map<>` fields as messages, others do not. So an index may name two messages, and the
setting of the lake selects one.

| `decode.message_index` | writers | map entries |
|---|---|---|
| `registered` | Java; Python, Go and .NET by default | count if the schema was registered as a descriptor, or as text that writes them out as messages; do not count in .proto text with `map<>` |
| `descriptor` | Python, Go and .NET, however the schema is registered | count at the position where protoc inserts them: at the field |
| `without_map_entries` | JavaScript | do not count |

Only a message that is declared after a map field of the same parent has two indexes.

The reasons: docs/decisions/frames.md.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor

from spark_app.model.catalog import Decodable, MessageIndex


@dataclass(frozen=True)
class Named:
    """The messages that an index names.

    Attributes:
        message: the message by the lake's numbering; None if there is none, or if the numbering does not select one.
        other: the message for writers with the other numbering; None if it is the same message or there is none.
    """

    message: Descriptor | None
    other: Descriptor | None = None


def name(decodable: Decodable, messages: Sequence[Descriptor], index: MessageIndex) -> Named:
    """Find the index among `messages`, the top-level messages of the writer's own file."""
    counted, skipped = (message_at(messages, index, entries) for entries in (True, False))
    if counted is skipped:
        return Named(counted)
    if decodable.counts_entries is None:
        return Named(None, counted or skipped)
    return Named(counted, skipped) if decodable.counts_entries else Named(skipped, counted)


def with_nested(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """The messages and all that they declare, without the entries of maps, which are no messages of their own."""
    for message in messages:
        if not is_entry(message):
            yield message
            yield from with_nested(message.nested_types)


def message_at(messages: Sequence[Descriptor], index: MessageIndex, entries: bool = True) -> Descriptor | None:
    """The message at the index; None if there is none, or if it is a map entry, which no record can be.

    Args:
        entries: whether map entries count.
    """
    found = None
    for position in index:
        if position >= len(messages):
            return None
        found = messages[position]
        messages = [nested for nested in found.nested_types if entries or not is_entry(nested)]
    return None if found is None or is_entry(found) else found


def index_within(parent: Descriptor, entries: bool = True) -> list[tuple[int, Descriptor]]:
    """(number, message) of the messages nested in `parent`. Map entries are left out; `entries` = they are counted."""
    nested = [message for message in parent.nested_types if entries or not is_entry(message)]
    return [(number, message) for number, message in enumerate(nested) if not is_entry(message)]


def depends_on_writer(messages: Sequence[Descriptor]) -> bool:
    """Whether some message of the file has two indexes, at any depth."""
    return any(
        index_within(message) != index_within(message, entries=False)
        or depends_on_writer([nested for _, nested in index_within(message)])
        for message in messages
    )


def is_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)
