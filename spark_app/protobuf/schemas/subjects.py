"""Checks whether a schema belongs to the app's topics: any producer can put any schema id into a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_app.settings.connections import name_in_context

MOST_KEPT = 16  # most subjects of a schema that are kept: one that is shared widely may be in thousands


@dataclass(frozen=True)
class Subjects:
    """The subjects of the topics' own schemas.

    Attributes:
        configured: the subjects of the settings; the subject of the values is first.
        topics: their subjects `<topic>-value`, `<topic>-key` and `<topic>-<message>` count, too.
        wrapped: the records contain wrapped messages, whose subjects are not configured.
    """

    configured: tuple[str, ...]
    topics: tuple[str, ...] = ()
    wrapped: bool = False

    def version(self, found: Mapping[str, int]) -> int | None:
        """The schema's version in the first configured subject that contains it; None if no configured subject does.

        Args:
            found: the result of `Registry.subjects_of`.
        """
        names = map(name_in_context, self.configured)
        return next((found[name] for name in names if name in found), None)

    def is_of_keys(self, subject: str) -> bool:
        """Whether it is the subject of the record keys; `subject` is without context."""
        return subject in map(name_in_context, self.configured[1:])

    def kept(self, found: Mapping[str, int]) -> dict[str, int]:
        """At most `MOST_KEPT` of a schema's subjects: those of the settings first, then by name. The first one is that
        in which the schema is compared with the version before it."""
        configured = [name_in_context(name) for name in self.configured]
        names = [*(name for name in configured if name in found), *sorted(found.keys() - set(configured))]
        return {name: found[name] for name in dict.fromkeys(names[:MOST_KEPT])}

    def own(self, found: Mapping[str, int], messages: Collection[str], known: Collection[str]) -> bool:
        """Whether a schema belongs to the topics.

        It belongs to them if one of its subjects is configured, or has the name of a topic, of a topic and a message,
        or of a known message alone. The schema of a wrapped message belongs to them if its message is known.

        Args:
            found: the schema's subjects, the result of `Registry.subjects_of`.
            messages: the full names of its messages.
            known: the full names of the messages of which the tables have rows.
        """
        endings = ("value", "key", *messages)
        ours = {f"{topic}-{ending}" for topic in self.topics for ending in endings}
        ours.update(map(name_in_context, self.configured), known)
        return not ours.isdisjoint(found) or (self.wrapped and not set(known).isdisjoint(messages))
