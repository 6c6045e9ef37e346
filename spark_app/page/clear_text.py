"""Whether the page may show records as they were sent, and which tables it hides: the same for views and jobs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from spark_app.lake import sql_tables
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.settings.models import Settings

HIDDEN = (
    "Keys, headers and values are hidden, because projections change columns of this lake. "
    "The setting page.clear_text = true shows them."
)


def shows_clear_text(lake: Lake, settings: Settings) -> bool:
    """False if projections change columns, now or in any definition that rows have, unless the settings allow
    it. False, too, if the definitions are damaged."""
    if settings.page.clear_text:
        return True
    if not settings.silver.is_empty:
        return False
    if not lake.storage.exists(lake.definitions):
        return True
    stored = read_json(lake.storage, lake.definitions)
    return stored is not None and all(
        isinstance(one, dict) and not one.get("columns") and not one.get("drop") for one in stored.values()
    )


def hidden_tables(lake: Lake, settings: Settings) -> frozenset[str]:
    """The tables with records as they were sent, if the page may not show these: all that are not known as others."""
    if shows_clear_text(lake, settings):
        return frozenset()
    layout = _layout_of(lake, settings)
    raw = {layout.bronze, layout.quarantine, layout.deferred, layout.dropped}
    shown = {layout.resolved, layout.lost, *layout.spooled}
    made = set(sql_tables.names(lake))  # of silver and gold
    unknown = (name for name in lake.tables() if not (layout.is_silver(name) or layout.is_gold(name) or name in made))
    return frozenset({*raw, *unknown} - shown)


def _layout_of(lake: Lake, settings: Settings) -> TableNames:
    """The names that the lake was made with, which the settings of the page may lack."""
    fixed, known = read_json(lake.storage, lake.fixed_settings) or {}, settings.layout
    kept = {one.name: fixed.get(f"tables.{one.name}") for one in fields(known)}
    texts: dict[str, Any] = {name: value for name, value in kept.items() if isinstance(value, str)}
    return replace(known, **texts)


def hidden_text(table: str) -> str:
    """Why the page does not show the rows of a table."""
    return (
        f"{table} has records as they were sent, and projections change columns of this lake, so the page "
        "does not show its rows. The setting page.clear_text = true shows them."
    )
