"""Which message an index names. Writers do not number alike: to some the entry of a `map<>` field is a message that
counts, to others it is none. So an index may name two messages, of which the lake's rule chooses one.

| `decode.message_index` | who numbers so | map entries |
|---|---|---|
| `registered` | Java; Python, Go and .NET by default | count where the schema was registered as a descriptor, or with them spelt out; not in .proto text with `map<>` |
| `descriptor` | Python, Go and .NET, however the schema is registered | count where protoc puts them: at the field |
| `without_map_entries` | JavaScript | do not count |

Only messages that are declared behind a map of the same parent are named by two indexes.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor

from spark_app.model.catalog import Decodable, MessageIndex


@dataclass(frozen=True)
class Named:
    """What an index names.

    Attributes:
        message: by the lake's rule; None if nothing, or if the rule does not say.
        other: what writers of the other kind mean by it, where that is another message.
    """

    message: Descriptor | None
    other: Descriptor | None = None


def name(decodable: Decodable, messages: Sequence[Descriptor], index: MessageIndex) -> Named:
    """What the index names among the top-level messages of the writer's own file."""
    counted, skipped = (message_at(messages, index, entries) for entries in (True, False))
    if counted is skipped:
        return Named(counted)
    if decodable.counts_entries is None:
        return Named(None, counted or skipped)
    return Named(counted, skipped) if decodable.counts_entries else Named(skipped, counted)


def message_at(messages: Sequence[Descriptor], index: MessageIndex, entries: bool = True) -> Descriptor | None:
    """The message at the index; None if there is none, or if it is the entry of a map, which is no message of its own.

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
    """The messages nested in one, with their numbers; map entries are none."""
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
