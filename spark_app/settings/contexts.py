"""Schema contexts: `:.sales:orders-value` is the subject `orders-value` of the context `sales`.

Ids, subjects and references are a context's own: id 7 is one schema in the default context and another in `sales`.
"""

from __future__ import annotations

import re

QUALIFIED = re.compile(r"(:\.[^:]*:)(.*)", re.DOTALL)
DEFAULT = ":.:"


def context_of(subject: str) -> str:
    """`:.sales:` of a subject of that context; empty for one of the default context."""
    found = QUALIFIED.fullmatch(subject)
    return "" if found is None or found[1] == DEFAULT else found[1]


def name_in_context(subject: str) -> str:
    """The subject without its context."""
    found = QUALIFIED.fullmatch(subject)
    return subject if found is None else found[2]


def qualify(subject: str, context: str) -> str:
    """What a schema of the context means by a subject: one of its own context, unless it names another."""
    return subject if QUALIFIED.fullmatch(subject) else context + subject
