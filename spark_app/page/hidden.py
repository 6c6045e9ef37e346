"""The tables whose rows the page does not show. Views and jobs decide by the same rule."""

from __future__ import annotations

from spark_app.page.clear_text import shows_clear_text
from spark_app.settings.models import Settings
from spark_app.storage.lake import Lake


def hidden_tables(lake: Lake, settings: Settings) -> frozenset[str]:
    """The tables with records as they were sent, if the page may not show these."""
    layout = settings.tables.layout
    raw = (layout.bronze, layout.quarantine, layout.deferred, layout.dropped)
    return frozenset() if shows_clear_text(lake, settings) else frozenset(raw)


def hidden_text(table: str) -> str:
    """Why the page does not show the rows of a table."""
    return (
        f"{table} has records as they were sent, and projections of this lake replace or drop columns, so the page "
        "does not show its rows. The setting page.clear_text = true shows them."
    )
