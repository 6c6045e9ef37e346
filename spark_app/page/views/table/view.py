"""One table: its columns, expectations, newest rows, files and versions, and how to query it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from spark_app.model.table_names import GOLD, TableNames
from spark_app.page import charts
from spark_app.page.context import PageContext, live
from spark_app.page.format import ago, amount, per_second, seconds, size, utc
from spark_app.page.observations import Observations, gold_state, pause_text
from spark_app.page.views.query.view import spelled
from spark_app.page.widgets import (
    NUMBER,
    failure,
    figure,
    grid,
    heading,
    live_figures,
    preformatted,
    set_status,
    status,
    table,
)

MOST_NAMED = 12  # silver tables that the view of bronze names
MOST_EXPECTATIONS = 12  # in the chart, those that most rows fail
COLUMNS = (("name", "column"), ("type", "type"), ("comment", "comment"), ("numbers", "field"), ("versions", "versions"))
MADE = ("made", "made of")
EXPECTATIONS = (("name", "expectation"), *((name, name) for name in ("check", "action", "passed", "failed")))
COUNTS = ("version", "passed", "failed")
COMMITS = (("version", "version"), ("at", "when, UTC"), ("what", "what the commit does"))


def show(context: PageContext, table: str) -> None:
    """The newest reading comes at once; the rest when the table has been read."""
    layer = Layer.of(context.layout, table)
    with ui.row().classes("items-center"):
        heading(table, 1)
        ui.label(layer.kind).classes("badge is-calm")
    _live_part(context, layer, table)
    content = ui.column().classes("full-width").style("gap: 20px")
    with content:
        status("The table is read ...")

    async def load() -> None:
        facts = asyncio.create_task(context.run_job("table", table=table))
        lineage = asyncio.create_task(context.run_job("lineage", table=table))
        found = await facts
        content.clear()
        with content:
            if found.get("unknown"):
                ui.label("The lake has no table of this name.").classes("trouble")
                ui.link("All tables are in the view Flow.", "/")
                lineage.cancel()
                return
            if "failed" in found:
                failure("The table cannot be read", found["failed"])
                lineage.cancel()
                return
            columns = _Sections(context, layer, table, found).show()
        columns(await lineage)

    ui.timer(0.01, load, once=True)


def _live_part(context: PageContext, layer: Layer, table: str) -> None:
    live_figures(context, lambda: figures(context.observed, context.layout, layer))
    wrong = ui.label().classes("trouble")

    def refresh() -> None:
        found = trouble(context.observed, layer, table)
        wrong.set_text(found)
        wrong.set_visibility(bool(found))

    live(context, refresh)


class _Sections:
    """The sections of a table that was read. `found` is the result of the job `table`."""

    def __init__(self, context: PageContext, layer: Layer, table: str, found: Mapping[str, Any]):
        self._context = context
        self._layer = layer
        self._table = table
        self._found = found

    def show(self) -> Callable[[Mapping[str, Any]], None]:
        """Returns what shows the result of the job `lineage`, too."""
        if self._found["comment"]:
            ui.label(self._found["comment"]).classes("faint")
        self._neighbours()
        columns = self._columns()
        if self._layer.kind == "silver":
            self._expectations()
        self._rows()
        self._files()
        self._how_to_query()
        return columns

    def _neighbours(self) -> None:
        """Links to the tables that this one comes from, and to those that come from it."""
        layout, there = self._context.layout, self._context.observed.newest.objects("tables")
        above, below = self._layer.neighbours(layout)
        known = set(self._context.lake.tables())
        if self._layer.kind == "bronze":
            below = [*(layout.silver_of(name) for name in sorted(there)[:MOST_NAMED]), *below]
        for title, names in (("comes from", above), ("goes to", below)):
            shown = [name for name in names if name in known]
            if shown:
                with ui.row().classes("items-center").style("gap: 4px 12px"):
                    ui.label(title).classes("faint")
                    for name in shown:
                        ui.link(name, f"/tables/{quote(name, safe='')}")
                    if title == "goes to" and self._layer.kind == "bronze" and len(there) > MOST_NAMED:
                        ui.link(f"and {amount(len(there) - MOST_NAMED)} more, in the view Flow", "/")

    def _columns(self) -> Callable[[Mapping[str, Any]], None]:
        found = self._found["columns"]
        heading(f"Columns ({amount(len(found))})", 2)
        is_silver = self._layer.kind == "silver"
        shown = [*(COLUMNS if is_silver else COLUMNS[:3]), *([] if self._layer.kind == "events" else [MADE])]
        listed = _plain_table("Columns", shown, [{"made": "...", **one} for one in found], "name")
        line = status()

        def complete(lineage: Mapping[str, Any]) -> None:
            made = lineage.get("columns", {})
            listed.rows = [{**one, **made.get(one["name"], {"made": ""})} for one in found]
            if "failed" in lineage:
                failure("Nobody knows where the columns come from", lineage["failed"], line)
            elif lineage.get("messages"):
                set_status(line, f"message types: {', '.join(lineage['messages'][:20])}")

        return complete

    def _expectations(self) -> None:
        expectations, rates = self._found["rules"], self._found["rates"]
        heading("Expectations", 2)
        if "failed" in expectations or "failed" in rates:
            why = expectations["failed"] if "failed" in expectations else rates["failed"]
            failure("The expectations cannot be read", why)
            return
        counts = {name: tuple(sum(one[part] for one in points) for part in (1, 2)) for name, points in rates.items()}
        known = {one["name"]: one for one in expectations}
        names = sorted({*known, *counts}, key=lambda name: (-_failing(counts.get(name)), name))
        if not names:
            ui.label("No expectation applies to this table.").classes("faint")
            return
        shown = [*EXPECTATIONS, ("rate", "pass rate")]
        rows = [_expectation_row(name, known.get(name), counts.get(name)) for name in names]
        _plain_table("Expectations", shown, rows, "name")
        series = {
            name: [
                (at, round(100 * passed / (passed + failed), 3))
                for at, passed, failed in rates[name]
                if passed + failed
            ]
            for name in names[:MOST_EXPECTATIONS]
            if name in rates
        }
        if series:
            ui.echart(charts.lines("rows that pass, in percent", series), renderer="svg").style(
                "height: 220px; width: 100%"
            ).props('aria-label="Pass rates over time"')
        ui.label("The counts are those of the newest events of the kind rule.").classes("faint")

    def _rows(self) -> None:
        rows = self._found["rows"]
        if "hidden" in rows:
            heading("Newest rows", 2)
            ui.label(rows["hidden"]).classes("trouble")
            return
        if "failed" in rows:
            heading("Newest rows", 2)
            failure("The rows cannot be read", rows["failed"])
            return
        heading(f"The newest {len(rows['rows'])} rows, by {rows['moment']}" if rows["moment"] else "Some rows", 2)
        types = {one["name"]: one["type"] for one in self._found["columns"]}
        grid("Newest rows", rows["columns"], rows["rows"], [types.get(name, "") for name in rows["columns"]])

    def _files(self) -> None:
        files, commits = self._found["files"], self._found["commits"]
        heading("Files and versions", 2)
        moment = self._context.observed.newest.moment
        with ui.element("div").classes("figures"):
            figure("files", amount(files["count"]))
            figure("size", size(files["bytes"]))
            figure("rows in these files", amount(files["rows"]))
            written = files["written_at"]
            figure("newest file", "-" if written is None else ago(max(0.0, moment - written)))
            figure("Delta version", amount(self._found["version"]))
        if isinstance(commits, dict):
            failure("The commits cannot be read", commits["failed"])
            return
        rows = [{**one, "at": utc(one["at"])} for one in commits]
        with ui.expansion(f"Newest commits ({len(rows)})").classes("full-width card").style("padding: 0"):
            _plain_table("Commits", COMMITS, rows, "version")

    def _how_to_query(self) -> None:
        heading("How to query it", 2)
        path = self._context.lake.storage.uri(self._table)
        several = snippets(path)
        with ui.tabs().props("dense no-caps align=left inline-label") as tabs:
            for name in several:
                ui.tab(name)
        with ui.tab_panels(tabs, value=next(iter(several))).classes("full-width").props("animated=false"):
            for name, text in several.items():
                with ui.tab_panel(name).style("padding: 8px 0"):
                    _snippet(name, text)
        sql = f"SELECT *\nFROM {spelled(self._table)}\nLIMIT 100"
        ui.link("Query it here", f"/query#sql={quote(sql, safe='')}")


def snippets(path: str) -> dict[str, str]:
    """How to read the table at a path: tool -> Python."""
    named = json.dumps(path, ensure_ascii=False)
    files = f"DeltaTable({named}).file_uris()"
    return {
        "Spark": f'spark.read.format("delta").load({named}).show(20, truncate=False)',
        "Polars": f"import polars as pl\n\nprint(pl.scan_delta({named}).head(20).collect())",
        "DuckDB": (
            "import duckdb\nfrom deltalake import DeltaTable\n\n"
            f'rows = duckdb.read_parquet({files}, union_by_name=True)\nduckdb.sql("FROM rows LIMIT 20").show()'
        ),
    }


def _snippet(name: str, text: str) -> None:
    with ui.row().classes("full-width no-wrap items-start"):
        preformatted(text, f"How to query it with {name}")
        button = ui.button(icon="content_copy").props(f'flat round dense aria-label="Copy the text for {name}"')
        button.on_click(lambda: ui.clipboard.write(text))
        button.on_click(lambda: ui.notify("The text is copied."))


def _plain_table(label: str, columns: Sequence[tuple[str, str]], rows: list[dict[str, Any]], key: str) -> ui.table:
    """A table whose texts are shown whole."""
    shown = [
        {
            "name": name,
            "field": name,
            "label": title,
            "align": "right" if name in (*COUNTS, "rate") else "left",
            "sortable": True,
            **({":format": NUMBER} if name in COUNTS else {}),
        }
        for name, title in columns
    ]
    return table(label, shown, key, rows).style("max-height: 560px").props("wrap-cells virtual-scroll hide-pagination")


def _failing(counts: Sequence[int] | None) -> float:
    """The share of the rows that fail."""
    return counts[1] / max(1, sum(counts)) if counts else 0.0


def _expectation_row(name: str, expectation: Mapping[str, str] | None, counts: Sequence[int] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "check": "no longer in the settings", "action": "", "rate": "-"}
    row |= expectation or {}
    if counts:
        row |= {"passed": counts[0], "failed": counts[1], "rate": f"{100 * (1 - _failing(counts)):.2f} %"}
    return row


@dataclass(frozen=True)
class Layer:
    """
    Attributes:
        kind: bronze, silver, gold, quarantine, deferred, dropped, replayed, lost, events, or "table" if none of them.
        name: the routing name of silver and gold; "" for the others.
        table: the gold table.
    """

    kind: str
    name: str = ""
    table: str = ""

    @staticmethod
    def of(layout: TableNames, table: str) -> Layer:
        single = {
            layout.bronze: "bronze",
            layout.quarantine: "quarantine",
            layout.deferred: "deferred",
            layout.dropped: "dropped",
            layout.resolved: "replayed",
            layout.lost: "lost",
            layout.events: "events",
        }
        if table in single:
            return Layer(single[table])
        if layout.is_silver(table):
            return Layer("silver", layout.name_of(table))
        if layout.is_gold(table):
            return Layer("gold", layout.gold_name_of(table), table)
        return Layer("table", "", table)

    def neighbours(self, layout: TableNames) -> tuple[list[str], list[str]]:
        """(tables that it comes from, tables that come from it); of bronze the silver tables are left out."""
        several: dict[str, tuple[list[str], list[str]]] = {
            "bronze": ([], [layout.quarantine, layout.deferred, layout.dropped]),
            "silver": ([layout.bronze], layout.all_gold_of(self.name)),
            "gold": ([layout.silver_of(self.name)], []),
            "quarantine": ([layout.bronze], [layout.resolved]),
            "deferred": ([layout.bronze], []),
            "dropped": ([layout.bronze], []),
            "replayed": ([layout.quarantine], []),
        }
        return several.get(self.kind, ([], []))


def figures(observed: Observations, layout: TableNames, layer: Layer) -> dict[str, str]:
    """The figures of a table without reading it, by name."""
    reading = observed.newest
    match layer.kind:
        case "bronze":
            rate = reading.number("rate") if reading.is_up else None
            rows = {"rows": amount(reading.number("bronze"))}
            return rows | {
                "records/s, last minute": per_second(rate),
                "age, produced to visible": seconds(reading.age_s),
            }
        case "silver":
            return {
                "rows": amount(reading.each("tables", "silver").get(layer.name)),
                "rows/s, last minute": per_second(observed.rate_of(layer.name)),
                "new rows": ago(observed.silent_s(layer.name)),
            }
        case "gold":
            more = reading.counts("gold_rows").get(layer.table)
            count = reading.each("tables", "gold").get(layer.name) if layout.gold_kind(layer.table) == GOLD else more
            return {"rows": amount(count), "gold": gold_state(reading, layout, layer.table)}
        case "quarantine":
            return {"open records": amount(sum(reading.counts("quarantine").values()))}
        case "deferred":
            return {"records": amount(reading.number("deferred"))}
        case "dropped":
            return {"records": amount(reading.number("dropped"))}
    sql = reading.objects("sql").get(layer.table)
    if not isinstance(sql, dict):
        return {}
    last = f"{sql.get('seconds')} s at {sql.get('at')}" if sql.get("at") else sql.get("waits") or "-"
    every = f"{sql.get('interval_s'):g} s" if isinstance(sql.get("interval_s"), float | int) else "-"
    return {
        "rows": amount(sql.get("rows")),
        "kept up by": str(sql.get("mode") or "-"),
        "every": every,
        "last run": last,
    }


def trouble(observed: Observations, layer: Layer, table: str) -> str:
    """The reason why rows stay out of the table, and the command that helps; "" = nothing."""
    reading = observed.newest
    pause = reading.objects("paused").get(layer.name) if layer.kind == "silver" else None
    if isinstance(pause, dict):
        remedy = (
            " Change the expectation and restart the app, or let the rows in with "
            f"./scripts/protolake resume {layer.name} --failing quarantine (or --failing land)"
        )
        return f"{table} is paused: {pause_text(pause)}." + ("" if pause.get("let_in") else remedy)
    why = reading.objects("gold_failed").get(table)
    if why is None:
        return ""
    remedy = (
        f"./scripts/protolake rebuild {layer.name} compares its silver table with bronze and recomputes it"
        if layer.kind == "gold"
        else "correct its statement and restart the app"
    )
    return f"{table} failed, and the app recomputes it later: {why}. If it fails again and again, {remedy}"
