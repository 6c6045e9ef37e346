"""The views under their addresses."""

from __future__ import annotations

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui

from spark_app.ops.log import log
from spark_app.page.context import PageContext
from spark_app.page.frame import framed
from spark_app.page.views import flow, quarantine, query, runs, schema_list, schema_page, table

TITLE = "Protolake"


def add_views(app: FastAPI, context: PageContext) -> None:
    """Let the application show the views, to whoever it lets in."""

    @ui.page("/")
    def show_flow(request: Request) -> None:
        with framed(context, request, "Flow"):
            flow.show(context)

    @ui.page("/quarantine")
    def show_quarantine(request: Request) -> None:
        with framed(context, request, "Quarantine"):
            quarantine.show(context)

    @ui.page("/schemas")
    def show_schemas(request: Request) -> None:
        with framed(context, request, "Schemas"):
            schema_list.show(context)

    @ui.page("/schemas/{schema}")
    def show_schema(request: Request, schema: str) -> None:
        with framed(context, request, "Schema"):
            schema_page.show(context, schema)

    @ui.page("/runs")
    def show_runs(request: Request) -> None:
        with framed(context, request, "Runs"):
            runs.show(context)

    @ui.page("/tables/{name:path}")
    def show_table(request: Request, name: str) -> None:
        with framed(context, request, "Table"):
            table.show(context, name)

    @ui.page("/query")
    def show_query(request: Request) -> None:
        with framed(context, request, "Query"):
            query.show(context)

    nicegui_app.on_exception(lambda error: log.error("a view failed", type=type(error).__name__, reason=str(error)))
    ui.run_with(app, title=TITLE, language="en-US", tailwind=False, show_welcome_message=False, favicon="🌊")
