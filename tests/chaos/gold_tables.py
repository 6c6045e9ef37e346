"""Gold tables of all kinds, and tables by SQL, over the events of the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

COUNT = {"function": "count"}
KINDS: dict[str, dict[str, Any]] = {
    "hourly": {"window": {"size": "1 hour", "slide": "30 minutes"}, "aggregates": {"n": COUNT}},
    "devices": {
        "key": ["device_id", "gamer_id"],
        "where": "col_custom_1 IS NOT NULL",
        "aggregates": {"n": COUNT, "last": {"function": "max"}},
    },
    "about": {"aggregates": {"devices": {"function": "distinct", "field": "device_id", "approximate": True}}},
    "sessions": {"window": {"gap": "30 minutes"}, "aggregates": {"n": COUNT}, "interval_s": 5.0},
    "whole": {"key": [], "aggregates": {"gamers": {"function": "distinct", "field": "gamer_id"}}, "interval_s": 5.0},
}
BY_SQL = {"TABLES__SQL": json.dumps([str(Path(__file__).parents[1] / "cases" / "derived.sql")])}
MADE_BY_SQL = {"derived_hours", "derived_rows", "derived_board"}
AS_SETTING = {"GOLD__TABLES": json.dumps(KINDS), **BY_SQL}
