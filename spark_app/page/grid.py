"""A table of values that come from records: all of them are text, NULL looks like NULL, and long ones are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from spark_app.page.widgets import table

CELL = """
<q-td :props="props" style="max-width: 360px; overflow: hidden; text-overflow: ellipsis"
  :title="props.value === null ? '' : String(props.value)">
  <span v-if="props.value === null" class="faint" style="font-style: italic">NULL</span>
  <template v-else>{{ String(props.value) }}</template>
</q-td>
"""
HIGH = "max-height: 480px"


def grid(label: str, names: Sequence[str], rows: Sequence[Sequence[Any]], details: Sequence[str]) -> ui.table:
    """
    Args:
        label: what it is, for those who do not see it.
        names: of the columns; two may be alike.
        rows: values of JSON.
        details: what the heading of each column says when it is pointed at.
    """
    numeric = [all(_is_number(row[place]) or row[place] is None for row in rows) for place in range(len(names))]
    columns = [
        {
            "name": f"c{place}",
            "field": f"c{place}",
            "label": name,
            "align": "right" if numeric[place] and rows else "left",
            "sortable": True,
            "detail": details[place],
        }
        for place, name in enumerate(names)
    ]
    values = [
        {"id": number, **{f"c{place}": value for place, value in enumerate(row)}} for number, row in enumerate(rows)
    ]
    found = table(label, columns, "id", values).style(HIGH)
    found.props('virtual-scroll hide-pagination no-data-label="no rows"').add_slot("body-cell", CELL)
    found.add_slot("header-cell", '<q-th :props="props" :title="props.col.detail">{{ props.col.label }}</q-th>')
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
