"""One record of quarantine: the reason, its headers, its bytes, and what they decode to."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from spark_app.page.clear_text import HIDDEN
from spark_app.page.context import PageContext
from spark_app.page.moments import utc
from spark_app.page.reasons import reason
from spark_app.page.said import size
from spark_app.page.widgets import failure, heading, preformatted, status

COORDINATES = ("topic", "topic_id", "partition", "offset")
WIDTH = "width: min(1100px, 94vw); max-width: none"
FACTS = "display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; overflow-wrap: anywhere"


class RecordDialog:
    """Shows one record after the other."""

    def __init__(self, context: PageContext):
        self._context = context
        self._asked = 0
        with ui.dialog() as self._dialog, ui.card().style(WIDTH).props('data-testid="record"'):
            with ui.row().classes("full-width items-center no-wrap"):
                self._title = heading("", 2)
                ui.space()
                close = ui.button(icon="close", on_click=self._dialog.close)
                close.props('flat round dense aria-label="Close"')
            self._place = ui.column().classes("full-width").style("gap: 16px")

    async def show(self, record: dict[str, Any]) -> None:
        """`record`: a row of the job `open_records`."""
        self._asked += 1
        asked = self._asked
        self._title.set_text(f"{record['topic']}/{record['partition']}@{record['offset']}")
        self._place.clear()
        with self._place:
            status("The record is read ...")
        self._dialog.set_value(True)
        answer = await self._context.ask("record_detail", **{name: record[name] for name in COORDINATES})
        if asked != self._asked:
            return
        self._place.clear()
        with self._place:
            if "failed" in answer:
                failure("The record cannot be shown", answer["failed"])
            else:
                _draw(answer)


def _draw(answer: dict[str, Any]) -> None:
    ui.label(reason(answer["cause"], answer.get("detail", ""))).classes("trouble").props('data-testid="reason"')
    if not answer["is_open"]:
        ui.label("A replay has placed this record meanwhile.")
    times = {f"{name}, UTC": utc(at) for name, at in answer["times"].items() if at is not None}
    facts = {"cause": answer["cause"]} | times | answer["facts"]
    facts |= {"rules that it fails": ", ".join(answer["rules"])} if answer["rules"] else {}
    _pairs(facts.items())
    if answer["hidden"]:
        ui.label(HIDDEN)
        return
    for part in answer["parts"]:
        with _section(f"Decoded {part['title']}" + (f": {part['message']}" if part["message"] else "")):
            for sentence in part["said"]:
                ui.label(sentence)
            if part["text"]:
                preformatted(part["text"], f"decoded {part['title']}")
    if answer["omitted"]:
        with _section("Value"):
            ui.label(f"Only its size and digest are kept: {answer['omitted']}").style("overflow-wrap: anywhere")
    else:
        _bytes("Value", answer["value"])
    _bytes("Key", answer["key"])
    with _section("Headers"):
        _pairs(answer["headers"]) if answer["headers"] else ui.label("The record has no headers.")


def _section(title: str) -> ui.column:
    column = ui.column().classes("full-width").style("gap: 4px")
    with column:
        heading(title, 3)
    return column


def _pairs(pairs: Any) -> None:
    with ui.element("div").classes("full-width").style(FACTS):
        for name, value in pairs:
            ui.label(name).classes("faint")
            ui.label(value)


def _bytes(title: str, found: dict[str, Any] | None) -> None:
    with _section(f"{title}, {size(found['size'])}" if found else title):
        if found is None:
            ui.label("It is NULL.")
        elif not found["size"]:
            ui.label("It is empty.")
        else:
            if found["shown"] < found["size"]:
                ui.label(f"Only the first {size(found['shown'])} are shown.")
            preformatted(found["dump"], f"{title} as hex")
