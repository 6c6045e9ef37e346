"""What all views have around them: the bar with the state of the app, the way to the other views, light or dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastapi import Request
from nicegui import ui

from spark_app.page.context import PageContext
from spark_app.page.said import seconds
from spark_app.page.style import COLOURS, OF_STATE, css

VIEWS = (
    ("/", "Flow"),
    ("/quarantine", "Quarantine"),
    ("/schemas", "Schemas"),
    ("/runs", "Runs"),
    ("/query", "Query"),
)
EVERY_S = 0.5
PATIENCE_S = 20.0  # for a browser that is busy
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
            for path, name in VIEWS:
                link = ui.link(name, path)
                if request.url.path == path or (path != "/" and request.url.path.startswith(f"{path}/")):
                    link.props("aria-current=page")
        ui.space()
        _state(context)
        button = ui.button(icon="contrast").props('flat round dense color=inherit aria-label="Light or dark"')
        button.on_click(lambda: _change(dark))
    with ui.column().classes("full-width").style("gap: 20px"):
        yield


def live(context: PageContext, refresh: Callable[[], None]) -> None:
    """Call `refresh` now and with each new reading, twice a second, as long as the view is open."""
    seen = -1

    def look() -> None:
        nonlocal seen
        if context.observed.number != seen:
            seen = context.observed.number
            refresh()

    refresh()
    ui.timer(EVERY_S, look)


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
