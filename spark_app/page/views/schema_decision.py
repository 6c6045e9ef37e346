"""The dialog in which a person decides about a schema whose records its changes keep out."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from spark_app.lake.lake import Lake
from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.schema_facts import FINAL, POLICIES
from spark_app.page.views.request_line import RequestLine
from spark_app.page.widgets import heading, say
from spark_app.recovery.requests import pending
from spark_app.recovery.result_text import accept_line


def decide(context: PageContext, schema: str, why: str) -> None:
    """Open the dialog. `why` says what the schema changes. The dialog is no part of what was clicked, because that is
    drawn anew when the decision is in the ledger."""
    with (
        ui.context.client.content,
        ui.dialog() as dialog,
        ui.card().classes("q-pa-lg q-gutter-sm").style("max-width: 760px; width: 100%"),
    ):
        heading(f"Decide about schema {schema}", 2)
        ui.label(why).style("overflow-wrap: anywhere")
        for policy in asked_before(context.lake, schema):
            ui.label(f"A decision waits for the app already: {policy}. It comes first.").classes("trouble")
        options = {policy: f"{policy}: {does}" for policy, does in POLICIES.items()}
        choice = ui.radio(options).props('aria-label="What becomes of the changes"')
        ui.label(FINAL).classes("trouble")
        request = RequestLine(context)
        with ui.row().classes("full-width justify-end"):
            request.add_cancel()
            close = ui.button("Close", on_click=dialog.close).props("flat no-caps")
            button = ui.button("Decide for good").props("no-caps")
            button.bind_enabled_from(choice, "value", bool)

    async def ask() -> None:
        button.disable()
        choice.disable()
        result = await request.ask("accept", {"schema": schema, "policy": choice.value})
        if result is None:
            return
        if "error" in result:
            button.enable()
            choice.enable()
        else:
            say(request.line, _said(result))
            close.set_text("Done")

    def leave() -> None:
        request.end()
        dialog.delete()

    button.on_click(ask)
    dialog.on("hide", leave)
    dialog.open()


def asked_before(lake: Lake, schema: str) -> list[str]:
    """The policies of decisions about the schema that the app has not carried out."""
    found = (one.arguments for one in pending(lake) if one.kind == "accept")
    return [one_line(str(given.get("policy"))) for given in found if str(given.get("schema")) == schema]


def _said(result: dict[str, Any]) -> str:
    try:
        line = accept_line(result)
    except (KeyError, TypeError):  # an app of another release
        return "The app has taken the decision."
    return f"{line[:1].upper()}{line[1:]}."
