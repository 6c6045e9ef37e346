"""The views under their addresses."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui

from spark_app.model.log import log
from spark_app.page.context import PageContext
from spark_app.page.frame import VIEWS, framed
from spark_app.page.views import flow, quarantine, query, runs, schema_list, schema_page, table

TITLE = "Protolake"
RECONNECTS_S = 10.0  # so long the state of a view is kept for a browser that is busy or has lost its network
SHOWN = {  # by the addresses of `frame.VIEWS`
    "/": flow.show,
    "/quarantine": quarantine.show,
    "/schemas": schema_list.show,
    "/runs": runs.show,
    "/query": query.show,
}


def add_views(app: FastAPI, context: PageContext) -> None:
    """Let the application show the views, to whoever it lets in."""
    for path, title in VIEWS:
        _add_view(context, path, title, SHOWN[path])

    @ui.page("/schemas/{schema}")
    def show_schema(request: Request, schema: str) -> None:
        with framed(context, request, "Schema"):
            schema_page.show(context, schema)

    @ui.page("/tables/{name:path}")
    def show_table(request: Request, name: str) -> None:
        with framed(context, request, "Table"):
            table.show(context, name)

    nicegui_app.on_exception(lambda error: log.error("a view failed", type=type(error).__name__, reason=str(error)))
    ui.run_with(
        app,
        title=TITLE,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        favicon="🌊",
        reconnect_timeout=RECONNECTS_S,
    )


def _add_view(context: PageContext, path: str, title: str, show: Callable[[PageContext], None]) -> None:
    @ui.page(path)
    def show_view(request: Request) -> None:
        with framed(context, request, title):
            show(context)
