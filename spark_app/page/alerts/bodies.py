"""What a receiver is sent about a transition of an alert."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Transition = Mapping[str, Any]
ALERTMANAGER = "/api/v2/alerts"


def _json(transition: Transition) -> Any:
    """The transition as it is, with its key, and without a level inside."""
    own = {"key": transition["id"], "at": transition["at"], "level": transition["level"]}
    return own | {"message": transition["message"]} | transition["details"]


def _slack(transition: Transition) -> Any:
    text = transition["message"]
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escaped)
    mark = ":white_check_mark:" if transition["details"]["state"] == "resolved" else ":rotating_light:"
    return {"text": f"{mark} {text}", "metadata": {"event_type": "alert", "event_payload": {"key": transition["id"]}}}


def _alertmanager(transition: Transition) -> Any:
    """The labels of an alert stay the same: by them Alertmanager knows which one is resolved. It takes none that ends
    before it starts, as one would after the clock was set back."""
    details = transition["details"]
    labels = {"alertname": details["rule"], "lake": details["lake"], "job": "protolake"}
    labels["severity"] = details["severity"]
    annotations = {"summary": transition["message"], "description": details["description"], "key": transition["id"]}
    if details["state"] == "resolved":
        times = {"startsAt": min(details["since"], transition["at"]), "endsAt": transition["at"]}
    else:
        times = {"startsAt": transition["at"]}
    return [{"labels": labels, "annotations": annotations, **times}]


FORMATS: Mapping[str, Callable[[Transition], Any]] = {"json": _json, "slack": _slack, "alertmanager": _alertmanager}


def body_of(form: str, transition: Transition) -> bytes:
    return json.dumps(FORMATS[form](transition)).encode()
