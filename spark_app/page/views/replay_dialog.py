"""The replay of what the view shows: a dry run first, then the replay itself, with its progress and result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from spark_app.page.context import PageContext
from spark_app.page.requested import Asked
from spark_app.page.said import amount
from spark_app.page.widgets import heading, preformatted
from spark_app.recovery.replay_arguments import replay_arguments, selects_some
from spark_app.recovery.result_text import replay_lines


class ReplayDialog:
    """One dialog for all replays of a view. `done` is called after a replay."""

    def __init__(self, context: PageContext, done: Callable[[], Awaitable[None]]):
        self._context = context
        self._done = done
        self._arguments: dict[str, Any] = {}
        self._asked: Asked | None = None
        self._is_dry_run = False
        with ui.dialog() as self._dialog, ui.card().style("width: min(760px, 94vw); max-width: none"):
            self._dialog.props('data-testid="replay"')
            heading("Replay", 2)
            self._which = ui.label().style("overflow-wrap: anywhere")
            with ui.row().classes("items-center no-wrap"):
                self._spinner = ui.spinner()
                self._said = ui.label().props('role=status aria-live=polite data-testid="progress"')
            self._result = preformatted("", "Result")
            with ui.row().classes("full-width justify-end"):
                self._cancel = ui.button("Cancel", on_click=self._withdraw).props("flat no-caps")
                self._close = ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
                self._replay = ui.button("Replay", on_click=self._carry_out)
                self._replay.props("unelevated no-caps color=primary")
        self._dialog.on("hide", self._end)
        ui.context.client.on_delete(self._end)

    async def show(self, cause: str, rule: str, schema: str) -> None:
        """Open it with the filters of the view; an empty one selects all."""
        filters = {"cause": cause, "rule": rule, "schema": schema}
        chosen = ", ".join(f"{name} {value}" for name, value in filters.items() if value)
        self._which.set_text(f"Open records with {chosen}." if chosen else "All open records.")
        chosen_of = {name: [value] if value else [] for name, value in filters.items()}
        self._arguments = replay_arguments(chosen_of["cause"], chosen_of["schema"], chosen_of["rule"])
        self._dialog.set_value(True)
        result = await self._ask(dry_run=True)
        count = sum(result["candidates"].values()) if result is not None and _is_known(result) else 0
        if count:
            self._replay.set_text(f"Replay {amount(count)} record{'' if count == 1 else 's'}")
            self._replay.set_visibility(True)

    async def _carry_out(self) -> None:
        if await self._ask(dry_run=False) is not None:
            await self._done()

    async def _ask(self, dry_run: bool) -> dict[str, Any] | None:
        """The result, which is shown; None if a newer request has taken its place."""
        asked = self._asked = Asked(self._context, "replay", self._arguments, dry_run)
        self._is_dry_run = dry_run
        self._wait(True)
        self._result.set_visibility(False)
        what = "Dry run, which only counts. " if dry_run else ""
        result = await asked.result(lambda said: self._said.set_text(f"{what}{said}"))
        if asked is not self._asked:
            return None
        self._asked = None
        self._wait(False)
        self._tell(result, dry_run)
        return result

    def _tell(self, result: dict[str, Any], dry_run: bool) -> None:
        if "error" in result:
            self._said.set_text(f"There is no result: {result['error']}")
        elif not _is_known(result):
            self._said.set_text("The app is of another release: its result cannot be shown.")
        else:
            self._said.set_text("The dry run has counted; nothing has changed." if dry_run else "The replay is done.")
            self._result.set_text("\n".join(replay_lines(result, selects_some(self._arguments))))
            self._result.set_visibility(True)

    def _wait(self, waits: bool) -> None:
        for element in (self._spinner, self._cancel):
            element.set_visibility(waits)
        self._replay.set_visibility(False)

    def _withdraw(self) -> None:
        """Remove the request, so that no start of the app carries it out."""
        try:
            if self._asked is not None:
                self._asked.withdraw()
        except OSError as error:
            self._said.set_text(f"The request cannot be removed ({error.strerror}); the app carries it out.")

    def _end(self) -> None:
        """Nobody looks any more: a dry run is of no use then, and a replay goes on."""
        if self._is_dry_run:
            self._withdraw()
        elif self._asked is not None:
            self._asked.leave()
        self._asked = None


def _is_known(result: dict[str, Any]) -> bool:
    """Whether a result has the form that `replay_lines` reads."""
    counts = [result.get("candidates"), result.get("refused", {}), result.get("resolved", {})]
    return type(result.get("waiting", 0)) is int and all(
        isinstance(one, dict) and all(type(count) is int for count in one.values()) for one in counts
    )
