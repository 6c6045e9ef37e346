"""Whose schema one is: a registry serves many topics, and anybody can put any of its ids into a record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_app.settings.contexts import name_in_context


@dataclass(frozen=True)
class Subjects:
    """The subjects that the topics' records are written by.

    Attributes:
        configured: named by the settings: that of the values first.
        topics: whose `<topic>-value`, `<topic>-key` and `<topic>-<message>` are their own, too.
        wrapped: the records hold messages whose subjects nobody names.
    """

    configured: tuple[str, ...]
    topics: tuple[str, ...] = ()
    wrapped: bool = False

    def version(self, found: Mapping[str, int]) -> int | None:
        """The version in the first configured subject that has the schema; `found` is `Registry.subjects_of`."""
        names = map(name_in_context, self.configured)
        return next((found[name] for name in names if name in found), None)

    def own(self, found: Mapping[str, int], messages: Collection[str], known: Collection[str]) -> bool:
        """Whether a schema of these subjects, with these messages, is one of the topics' own.

        A subject may be named after the topic, after topic and message, or after the message alone. Such a one counts,
        and so does the schema of what a wrapper holds, when the tables have rows of that message: `known`.
        """
        endings = ("value", "key", *messages)
        ours = {f"{topic}-{ending}" for topic in self.topics for ending in endings}
        ours.update(map(name_in_context, self.configured), known)
        return not ours.isdisjoint(found) or (self.wrapped and not set(known).isdisjoint(messages))
