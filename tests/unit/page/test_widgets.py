"""What the views have in common: names for those who do not see, and failures that look the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nicegui import Client, ui
from nicegui.page import page

from spark_app.page import widgets

HOSTILE = 'a" onload="x\x1b[31m\u202e'


@pytest.fixture
def tab() -> Iterator[Client]:
    with Client(page("/")) as client:
        yield client
    client.delete()


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_heading_is_one(tab: Client, level: widgets.Literal[1, 2, 3]) -> None:
    found = widgets.heading(HOSTILE, level)
    assert (found.tag, found.text) == (f"h{level}", HOSTILE)


def test_names_are_never_markup(tab: Client) -> None:
    shown = (
        widgets.preformatted("text", HOSTILE).props["aria-label"],
        widgets.table(HOSTILE, [], "key").props["aria-label"],
        widgets.figure(HOSTILE).props["data-testid"],
    )
    assert shown == (HOSTILE,) * 3
    assert not any("onload" in name for element in tab.elements.values() for name in element.props)


def test_a_failed_job_is_announced_in_lines_and_without_control_characters(tab: Client) -> None:
    line = widgets.status("It is read ...").props("data-testid=line")
    assert line.props["role"] == "status"
    assert widgets.failure("It cannot be read", f"{HOSTILE}\nmore", line) is line
    assert line.text == 'It cannot be read: a" onload="x\\x1b[31m\\u202e\nmore'
    assert (line.props["role"], list(line.classes)) == ("alert", ["trouble"])
    widgets.set_status(line, "It is read.")
    assert (line.text, line.props["role"], list(line.classes)) == ("It is read.", "status", ["faint"])
    assert line.props["data-testid"] == "line"
    own = widgets.failure("It cannot be read", "why")
    assert (own.props["role"], list(own.classes)) == ("alert", ["trouble"])


def test_a_chart_is_sent_again_only_if_it_changed(tab: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = ui.echart({"series": [1]})
    sent: list[int] = []
    monkeypatch.setattr(chart, "update", lambda: sent.append(1))
    widgets.draw(chart, {"series": [1]})
    assert sent == []
    widgets.draw(chart, {"series": [2]})
    assert sent
    assert chart.options == {"series": [2]}
