"""Causes of quarantine in words."""

from __future__ import annotations

from spark_app.model.causes import CAUSE_HELP

MEANINGS = {cause.value: f"{text[0].upper()}{text[1:]}.".replace("`", "") for cause, text in CAUSE_HELP.items()}
UNKNOWN = "A release that this page does not know has named this cause."


def meaning(cause: str) -> str:
    """One sentence."""
    return MEANINGS.get(cause, UNKNOWN)


def reason(cause: str, detail: str) -> str:
    """The meaning of a cause, and what is known of one record."""
    return f"{meaning(cause)} {detail}".strip()
