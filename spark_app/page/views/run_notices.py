"""What is going on now: alerts that fire, and requests that are not done."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from spark_app.model.errors import ContractError
from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.files import PageFiles
from spark_app.page.moments import moment_of, utc
from spark_app.page.pending_requests import PendingRequest, cancel, pending_requests
from spark_app.page.style import OF_LEVEL
from spark_app.page.widgets import heading


class RunNotices:
    """Is drawn anew when something in it changes."""

    def __init__(self, context: PageContext):
        self._context = context
        self._place = ui.column().classes("full-width").style("gap: 8px")
        self._seen: Any = None

    def refresh(self) -> None:
        alerts = _firing(self._context)
        asked = pending_requests(self._context.lake, self._context.observed.newest.is_up)
        if (alerts, asked) == self._seen:
            return
        self._seen = (alerts, asked)
        self._place.clear()
        with self._place:
            if alerts:
                heading("Alerts that fire", 2)
            for level, message in alerts:
                icon, colour = OF_LEVEL.get(level, OF_LEVEL["INFO"])
                with ui.row().classes("trouble items-center no-wrap").props('data-testid="alert"'):
                    ui.icon(icon, size="20px").classes(f"is-{colour}").props("aria-hidden=true")
                    ui.label(message).style("overflow-wrap: anywhere")
            if asked:
                heading("Requests that are not done", 2)
            for one in asked:
                self._show(one)

    def _show(self, one: PendingRequest) -> None:
        with ui.row().classes("card items-center no-wrap").props('data-testid="pending"'):
            ui.icon("pending_actions", size="22px").classes("is-calm").props("aria-hidden=true")
            with ui.column().classes("col").style("gap: 2px"):
                ui.label(one.said).style("overflow-wrap: anywhere")
                ui.label(one.progress).classes("faint")
            button = ui.button("Cancel", on_click=lambda: ui.notify(cancel(self._context.lake, one.id)))
            button.props("no-caps outline").props["aria-label"] = f"Cancel request {one.id}"


def _firing(context: PageContext) -> list[tuple[str, str]]:
    """(level, sentence) of each alert that fires, by the states that the page itself keeps."""
    try:
        firing = PageFiles(context.lake).read_alerts().get("firing")
    except (OSError, ContractError):
        return []
    found = firing.values() if isinstance(firing, dict) else ()
    return [(str(one.get("level")), _said(one)) for one in found if isinstance(one, dict)]


def _said(alert: dict[str, Any]) -> str:
    message, at = str(alert.get("message", "")), utc(moment_of(alert.get("at")))
    return one_line(f"{message[:1].upper()}{message[1:]}, since {at} UTC")
