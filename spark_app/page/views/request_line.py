"""The request of a dialog: its progress in a line, and a button that withdraws it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from spark_app.page.context import PageContext
from spark_app.page.requested import Asked, Kind
from spark_app.page.widgets import failure, say, status


class RequestLine:
    """Waits for one request at a time.

    Attributes:
        line: says the progress; whoever asked says the result in it.
    """

    def __init__(self, context: PageContext):
        self._context = context
        self._asked: Asked | None = None
        with ui.row().classes("items-center no-wrap"):
            self._spinner = ui.spinner()
            self.line = status().props('data-testid="progress"').style("min-height: 1.5em")
        self._spinner.set_visibility(False)
        self._cancel: ui.button | None = None
        ui.context.client.on_delete(self.end)

    def add_cancel(self) -> None:
        """The button, which is there while the request waits."""
        self._cancel = ui.button("Cancel", on_click=self._withdraw).props("flat no-caps")
        self._cancel.set_visibility(False)

    async def ask(self, kind: Kind, arguments: dict[str, Any], dry_run: bool = False) -> dict[str, Any] | None:
        """The result, {"error": why} if there is none, which the line says, too; None if nobody waits any more."""
        asked = self._asked = Asked(self._context, kind, arguments, dry_run)
        self._wait(True)
        what = "Dry run, which only counts. " if dry_run else ""
        result = await asked.result(lambda said: say(self.line, f"{what}{said}"))
        if asked is not self._asked:
            return None
        self._asked = None
        self._wait(False)
        if "error" in result:
            failure("There is no result", result["error"], self.line)
        return result

    def end(self) -> None:
        """Nobody looks any more: a dry run is of no use then, and anything else goes on."""
        if self._asked is not None and self._asked.is_dry_run:
            self._withdraw()
        elif self._asked is not None:
            self._asked.leave()
        self._asked = None

    def _withdraw(self) -> None:
        """Remove the request, so that no start of the app carries it out."""
        try:
            if self._asked is not None:
                self._asked.withdraw()
        except OSError as error:
            failure("The request cannot be removed, and the app carries it out", error.strerror, self.line)

    def _wait(self, waits: bool) -> None:
        self._spinner.set_visibility(waits)
        if self._cancel is not None:
            self._cancel.set_visibility(waits)
