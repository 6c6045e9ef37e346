"""The replay of what the view shows: a dry run first, then the replay itself, with its progress and result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from spark_app.page.context import PageContext
from spark_app.page.said import amount
from spark_app.page.views.request_line import RequestLine
from spark_app.page.widgets import heading, preformatted, say
from spark_app.recovery.replay_arguments import replay_arguments, selects_some
from spark_app.recovery.result_text import replay_lines

COUNTED = "The dry run has counted the records that match. Only the replay shows how many can be placed."


class ReplayDialog:
    """One dialog for all replays of a view. `done` is called after a replay."""

    def __init__(self, context: PageContext, done: Callable[[], Awaitable[None]]):
        self._done = done
        self._arguments: dict[str, Any] = {}
        with ui.dialog() as self._dialog, ui.card().style("width: min(760px, 94vw); max-width: none"):
            self._dialog.props('data-testid="replay"')
            heading("Replay", 2)
            self._which = ui.label().style("overflow-wrap: anywhere")
            self._request = RequestLine(context)
            self._result = preformatted("", "Result")
            with ui.row().classes("full-width justify-end"):
                self._request.add_cancel()
                ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
                self._replay = ui.button("Replay", on_click=self._carry_out)
                self._replay.props("unelevated no-caps color=primary")
        self._dialog.on("hide", self._request.end)

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
        """The result, which is shown; None if nobody waits for it any more."""
        for element in (self._replay, self._result):
            element.set_visibility(False)
        result = await self._request.ask("replay", self._arguments, dry_run)
        if result is None or "error" in result:
            return result
        if not _is_known(result):
            say(self._request.line, "The app is of another release: its result cannot be shown.")
            return result
        done = COUNTED if dry_run else "The replay is done."
        say(self._request.line, done)
        self._result.set_text("\n".join(replay_lines(result, selects_some(self._arguments))))
        self._result.set_visibility(True)
        return result


def _is_known(result: dict[str, Any]) -> bool:
    """Whether a result has the form that `replay_lines` reads."""
    counts = [result.get("candidates"), result.get("refused", {}), result.get("resolved", {})]
    return type(result.get("waiting", 0)) is int and all(
        isinstance(one, dict) and all(type(count) is int for count in one.values()) for one in counts
    )
