"""The looks of the page, light and dark: colours of states, and what Quasar has no class for."""

from __future__ import annotations

COLOURS = {
    "good": "#0b7a4b",
    "warn": "#9a5b00",
    "bad": "#b3261e",
    "calm": "#5b6470",
    "accent": "#2456a6",
}
# The same on a dark ground, where they must be lighter to be read.
DARK = {"good": "#5fd3a0", "warn": "#f0b656", "bad": "#ff8f87", "calm": "#a9b4c0", "accent": "#8ab4f8"}
# Of charts, which know nothing of light and dark: their SVG is coloured anew by CSS.
INK, PALE_INK, TEXT, LINE, PAPER = "#1c2430", "#3d4754", "#5c6773", "#9aa4b1", "#fffffe"
DARK_CHART = {INK: "#f0f3f7", PALE_INK: "#c3ccd6", TEXT: "#a9b4c0", LINE: "#5b6672", PAPER: "#20262e"}

# state of the app -> one of the words above
OF_STATE = {
    "running": "good",
    "starting": "accent",
    "waiting": "warn",
    "silent": "warn",
    "stopped": "calm",
    "no app yet": "calm",
    "held": "bad",
    "dead": "bad",
}

# level of an event or an alert -> icon, and one of the words above
OF_LEVEL = {
    "INFO": ("info", "calm"),
    "WARN": ("warning", "warn"),
    "WARNING": ("warning", "warn"),
    "ERROR": ("error", "bad"),
}

CSS = """
:root { color-scheme: light dark; --line: #d5dae1; --soft: #f4f6f9; --text: #1c2430; --faint: #566070; }
body.body--dark { --line: #3a424d; --soft: #20262e; --text: #e6eaf0; --faint: #a9b4c0; }
body.body--dark { --q-primary: #8ab4f8 !important; --q-negative: #ff8f87 !important; }
@layer theme { body.body--dark .bg-primary { color: #10151c !important; } } /* before Quasar's own !important */
.nicegui-link { color: var(--q-primary); }
body { color: var(--text); font-size: 14px; }
.nicegui-content { padding: 16px 24px 48px; gap: 20px; max-width: 1440px; margin: 0 auto; width: 100%; }
.bar { background: var(--soft) !important; color: var(--text) !important; border-bottom: 1px solid var(--line); }
.bar a { color: var(--text); text-decoration: none; padding: 6px 10px; border-radius: 6px; }
.bar a:hover { background: var(--line); }
.bar a[aria-current] { font-weight: 600; box-shadow: inset 0 -2px 0 currentColor; }
.brand { font-weight: 700; font-size: 16px; }
.badge { padding: 3px 10px; border-radius: 12px; font-weight: 600; border: 1px solid currentColor; }
.faint { color: var(--faint); }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 16px; width: 100%; }
.figures { display: flex; flex-wrap: wrap; gap: 12px; width: 100%; }
.figure { border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; min-width: 128px; }
.figure .value { font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.trouble { border-left: 4px solid var(--q-negative); padding: 8px 12px; background: var(--soft); width: 100%; }
h1 { font-size: 22px; font-weight: 600; line-height: 1.3; margin: 0; }
h2 { font-size: 16px; font-weight: 600; line-height: 1.3; margin: 0; }
pre.bytes { font-family: ui-monospace, monospace; font-size: 12px; line-height: 1.45; margin: 0; overflow: auto;
  max-height: 420px; padding: 12px; background: var(--soft); border-radius: 6px; width: 100%; white-space: pre; }
.q-table th { font-weight: 600; color: var(--text); }
.q-table td { font-variant-numeric: tabular-nums; }
.q-table__bottom, .q-table__top { color: var(--faint); }
:focus-visible { outline: 2px solid var(--q-primary) !important; outline-offset: 2px; }
"""


def css() -> str:
    """The rules of all views."""
    words = (f".is-{word} {{ color: {colour}; }}" for word, colour in COLOURS.items())
    dark = (f".body--dark .is-{word} {{ color: {colour}; }}" for word, colour in DARK.items())
    repaint = DARK_CHART | {COLOURS[word]: colour for word, colour in DARK.items()}
    charts = (
        f'.body--dark .nicegui-echart svg [{part}="{light}"] {{ {part}: {colour}; }}'
        for light, colour in repaint.items()
        for part in ("fill", "stroke")
    )
    return "\n".join((CSS, *words, *dark, *charts))
