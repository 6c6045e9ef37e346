"""The views under their addresses, each below the bar: the other views, the state of the app, light or dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui

from spark_app.model.log import log
from spark_app.page.context import PATIENCE_S, PageContext, live
from spark_app.page.format import seconds
from spark_app.page.guard import USER
from spark_app.page.views import VIEWS, View
from spark_app.page.widgets import COLOURS, OF_STATE, css

TITLE = "Protolake"
RECONNECTS_S = 10.0  # so long the state of a view is kept for a browser that is busy or has lost its network
LOOK = "protolake_look"  # the cookie with "dark" or "light"
# Keeps the other look for the next view; until somebody chooses, the system decides.
TURN = f"""
const look = Quasar.Dark.isActive ? 'light' : 'dark';
document.cookie = `{LOOK}=${{look}}; path=/; max-age=31536000; samesite=lax`;
return look;
"""
# A table that scrolls must be reached by the keyboard; Quasar makes its parts when it likes.
REACHABLE = """<script>
setInterval(() => document.querySelectorAll('.q-table__middle').forEach(part => { part.tabIndex = 0; }), 500);
</script>"""


def add_views(app: FastAPI, context: PageContext) -> None:
    """Let the application show the views, to whoever it lets in."""
    for view in VIEWS:
        _add_view(context, view)
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


def _add_view(context: PageContext, view: View) -> None:
    show = view.load()

    @ui.page(view.path)
    def show_view(request: Request) -> None:
        own = replace(context, user=request.scope[USER])
        with framed(own, request, view.title):
            if view.is_open_to(own.sees_all, own.may("query")):
                show(own, **request.path_params)


@contextmanager
def framed(context: PageContext, request: Request, title: str) -> Iterator[None]:
    """The content of a view goes inside; the heading of the view is its own."""
    ui.page_title(f"{title} · Protolake")
    ui.add_css(css())
    ui.add_head_html(REACHABLE)
    ui.colors(primary=COLOURS["accent"], positive=COLOURS["good"], negative=COLOURS["bad"], warning=COLOURS["warn"])
    dark = ui.dark_mode({"dark": True, "light": False}.get(request.cookies.get(LOOK, "")))
    with ui.header().classes("bar items-center").style("gap: 12px"):
        ui.label("Protolake").classes("brand")
        with ui.element("nav").props('aria-label="Views"').style("display: flex; gap: 4px; flex-wrap: wrap"):
            for path, name in _views_in_bar(context):
                link = ui.link(name, path)
                if request.url.path == path or (path != "/" and request.url.path.startswith(f"{path}/")):
                    link.props("aria-current=page")
        ui.space()
        if context.sees_all:
            _state(context)
        button = ui.button(icon="contrast").props('flat round dense color=inherit aria-label="Light or dark"')
        button.on_click(lambda: _change(dark))
    with ui.column().classes("full-width").style("gap: 20px"):
        yield


def _views_in_bar(context: PageContext) -> list[tuple[str, str]]:
    may_query = context.may("query")
    return [
        (view.path, view.title) for view in VIEWS if view.is_in_bar and view.is_open_to(context.sees_all, may_query)
    ]


async def _change(dark: ui.dark_mode) -> None:
    dark.value = await ui.run_javascript(TURN, timeout=PATIENCE_S) == "dark"


def _state(context: PageContext) -> None:
    """The state of the app, and why it is not healthy."""
    why = ui.label().classes("faint").style("max-width: 44vw; overflow-wrap: anywhere")
    badge = ui.label().classes("badge").props('role=status aria-live=polite data-testid="state"')

    def refresh() -> None:
        state, newest = context.observed.state, context.observed.newest
        badge.classes(replace=f"badge is-{OF_STATE[state]}")
        age = newest.status_age_s
        badge.set_text(f"not heard from for {seconds(age)}" if state == "silent" and age else state)
        why.set_text("" if newest.problem is None or state in ("silent", "stopped", "no app yet") else newest.problem)

    live(context, refresh)
