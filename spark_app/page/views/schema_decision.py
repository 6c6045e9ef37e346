"""The dialog in which a person decides about a schema whose records its changes keep out."""

from __future__ import annotations

import contextlib
from typing import Any

from nicegui import ui

from spark_app.model.text import one_line
from spark_app.page.context import PageContext
from spark_app.page.requested import carry_out
from spark_app.page.schema_facts import FINAL, POLICIES
from spark_app.page.widgets import heading
from spark_app.recovery.requests import pending
from spark_app.recovery.result_text import accept_line
from spark_app.storage.lake import Lake


class _Closed(Exception):
    """Nobody looks at the dialog any more."""


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
        choice = ui.radio(options, value="new_column").props('aria-label="What becomes of the changes"')
        ui.label(FINAL).classes("trouble")
        progress = ui.label().props('role=status aria-live=polite data-testid="progress"').style("min-height: 1.5em")
        with ui.row().classes("full-width justify-end"):
            close = ui.button("Close", on_click=dialog.close).props("flat no-caps")
            button = ui.button("Decide").props("no-caps")

    def tell(text: str) -> None:
        if progress.is_deleted:
            raise _Closed
        progress.set_text(text)

    async def ask() -> None:
        button.disable()
        choice.disable()
        with contextlib.suppress(_Closed):
            result = await carry_out(context, "accept", {"schema": schema, "policy": choice.value}, tell)
            tell(_said(result))
            close.set_text("Done")

    button.on_click(ask)
    dialog.on("hide", dialog.delete)
    dialog.open()


def asked_before(lake: Lake, schema: str) -> list[str]:
    """The policies of decisions about the schema that the app has not carried out."""
    found = (one.arguments for one in pending(lake) if one.kind == "accept" and isinstance(one.arguments, dict))
    return [one_line(str(given.get("policy"))) for given in found if str(given.get("schema")) == schema]


def _said(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"The decision has failed: {result['error']}"
    try:
        line = accept_line(result)
    except (KeyError, TypeError):  # an app of another release
        return "The app has taken the decision."
    return f"{line[:1].upper()}{line[1:]}."
