"""Schema contexts: `:.sales:orders-value` is the subject `orders-value` of the context `sales`.

Each context has its own ids, subjects and references: id 7 is one schema in the default context and another in `sales`.
"""

from __future__ import annotations

import re

QUALIFIED = re.compile(r"(:\.[^:]*:)(.*)", re.DOTALL)
DEFAULT = ":.:"


def context_of(subject: str) -> str:
    """The context of a subject, such as `:.sales:`; empty for the default context."""
    found = QUALIFIED.fullmatch(subject)
    return "" if found is None or found[1] == DEFAULT else found[1]


def name_in_context(subject: str) -> str:
    """The subject without its context."""
    found = QUALIFIED.fullmatch(subject)
    return subject if found is None else found[2]


def qualify(subject: str, context: str) -> str:
    """The full subject of a reference in a schema of this context: a subject without a context is of the same one."""
    return subject if QUALIFIED.fullmatch(subject) else context + subject
