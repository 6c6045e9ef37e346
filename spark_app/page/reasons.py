"""Causes of quarantine in words."""

from __future__ import annotations

from spark_app.model.causes import CAUSE_HELP

MEANINGS = {cause.value: f"{text[0].upper()}{text[1:]}".replace("`", "") for cause, text in CAUSE_HELP.items()}
UNKNOWN = "This release does not know the cause"


def reason(cause: str, detail: str = "") -> str:
    """The meaning of a cause as a sentence, with what is known of one record."""
    return f"{MEANINGS.get(cause, UNKNOWN)}: {detail}" if detail else f"{MEANINGS.get(cause, UNKNOWN)}."
