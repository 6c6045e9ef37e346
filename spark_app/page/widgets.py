"""What several views have: headings, figures, tables, texts in lines, and what they say of jobs that run or failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from spark_app.model.text import one_line

# Of a number in a column of a table, in Quasar.
NUMBER = "value => value == null ? '-' : value.toLocaleString('en', {maximumFractionDigits: 3})"


def heading(text: str, level: Literal[1, 2, 3]) -> TextElement:
    found = TextElement(tag=f"h{level}", text=text).style("overflow-wrap: anywhere")
    return found.classes("text-subtitle1").style("margin: 0") if level == 3 else found


def figure(name: str, text: str = "-", more: str = "") -> ui.label:
    """The value with its name below. `more` is said when somebody points at it."""
    with ui.element("div").classes("figure"):
        value = ui.label(text).classes("value").style("overflow-wrap: anywhere")
        value.props["data-testid"] = name
        ui.label(name).classes("faint")
        if more:
            ui.tooltip(more)
    return value


def preformatted(text: str, name: str) -> TextElement:
    """Text as it is, in lines; the keyboard can scroll it."""
    found = TextElement(tag="pre", text=text).classes("bytes").props("tabindex=0 role=region")
    found.props.update({"aria-label": name, "data-testid": name})
    return found


def draw(chart: ui.echart, options: dict[str, Any]) -> None:
    """Show the options if they are others than before; the chart notices changes of them."""
    if chart.options != options:
        chart.options.clear()
        chart.options.update(options)


def table(
    label: str,
    columns: Sequence[dict[str, Any]],
    key: str,
    rows: Sequence[dict[str, Any]] = (),
    pagination: int | dict[str, Any] = 0,
) -> ui.table:
    """
    Args:
        label: what it is, for those who do not see it.
        key: the column that no two rows have alike.
        pagination: rows of a page, or also their order; 0 = all rows at once.
    """
    found = ui.table(rows=list(rows), columns=list(columns), row_key=key, pagination=pagination)
    found.classes("full-width").props("flat bordered dense role=group").props["aria-label"] = label
    return found


def cells(listed: ui.table, column: str) -> ui.element:
    """The cells of a column, as the place of elements that keep the keyboard's focus: what a template draws is made
    anew with each update of the page. Their `props` are those of Quasar's slot `body-cell`."""
    with listed.add_slot(f"body-cell-{column}"):
        return ui.element("q-td").props(':props="props"')


def link_cells(listed: ui.table, column: str, path: str) -> None:
    """Show the values of a column as links.

    Args:
        path: JavaScript that gives the address; it may use `props`.
    """
    with cells(listed, column):
        ui.element("a").props(f':textContent="props.value" :href="{path}"')


def status(text: str = "") -> ui.label:
    """A line that says what is waited for, or what was found."""
    return ui.label(text).classes("faint").props("role=status")


def say(line: ui.label, text: str) -> None:
    """Let a line of `status` say something else."""
    line.classes(replace="faint").props("role=status").set_text(text)


def failure(what: str, why: Any, line: ui.label | None = None) -> ui.label:
    """Say that a job failed, in a line of `status` or in one of its own.

    Args:
        what: what there is not, for instance "The records cannot be read".
        why: of the job.
    """
    line = line or ui.label()
    line.set_text("\n".join(map(one_line, f"{what}: {why}".split("\n"))))
    return line.classes(replace="trouble").props("role=alert").style("white-space: pre-wrap; overflow-wrap: anywhere")
