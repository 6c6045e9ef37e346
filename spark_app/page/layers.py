"""Which layer of the lake a table belongs to, and what the newest reading says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_app.model.table_names import TableNames
from spark_app.page.metrics.reading import Reading
from spark_app.page.observations import Observations
from spark_app.page.said import ago, amount, per_second, seconds


@dataclass(frozen=True)
class Layer:
    """
    Attributes:
        kind: bronze, silver, gold, quarantine, deferred, dropped, replayed, lost, events, or "table" if none of them.
        name: the routing name of silver and gold; "" for the others.
    """

    kind: str
    name: str = ""

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
            return Layer("gold", layout.gold_name_of(table))
        return Layer("table")

    def neighbours(self, layout: TableNames) -> tuple[list[str], list[str]]:
        """(tables that it comes from, tables that come from it); of bronze the silver tables are left out."""
        aside = [layout.quarantine, layout.deferred, layout.dropped]
        match self.kind:
            case "bronze":
                return [], aside
            case "silver":
                return [layout.bronze], [layout.gold_of(self.name)]
            case "gold":
                return [layout.silver_of(self.name)], []
            case "quarantine":
                return [layout.bronze], [layout.resolved]
            case "deferred" | "dropped":
                return [layout.bronze], []
            case "replayed":
                return [layout.quarantine], []
        return [], []


def figures(observed: Observations, layout: TableNames, layer: Layer) -> dict[str, str]:
    """What is known of a table without reading it, by name."""
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
            rows = {"rows": amount(reading.each("tables", "gold").get(layer.name))}
            return rows | {"gold": gold_state(reading, layout, layer.name)}
        case "quarantine":
            return {"open records": amount(sum(reading.counts("quarantine").values()))}
        case "deferred":
            return {"records": amount(reading.number("deferred"))}
        case "dropped":
            return {"records": amount(reading.number("dropped"))}
    return {}


def gold_state(reading: Reading, layout: TableNames, name: str) -> str:
    """Whether the gold table of a routing name has all rows of silver."""
    behind = reading.each("followers", "lag").get("gold")
    if layout.gold_of(name) in reading.objects("gold_failed"):
        return "failed"
    if not behind:
        return "up to date"
    return f"gold is {amount(behind)} unit{'' if behind == 1 else 's'} behind"


def troubled_tables(reading: Reading, layout: TableNames) -> dict[str, str]:
    """Routing name -> what is wrong, in two words at most."""
    failed = dict.fromkeys(map(layout.gold_name_of, reading.objects("gold_failed")), "gold failed")
    return failed | dict.fromkeys(reading.objects("paused"), "paused")


def pause_text(pause: Mapping[str, Any]) -> str:
    """What becomes of the rows of a paused table; `pause` is what the status says of it."""
    rows = f"{amount(pause.get('rows'))} rows"
    if pause.get("let_in"):
        return f"{rows} are let in"
    return f"{rows} wait: the record {pause.get('record')} fails the rule {pause.get('rule')}"


def trouble(observed: Observations, layer: Layer, table: str) -> str:
    """What keeps rows out of the table, and which command helps; "" = nothing."""
    reading = observed.newest
    pause = reading.objects("paused").get(layer.name) if layer.kind == "silver" else None
    if isinstance(pause, dict):
        remedy = (
            " Change the rule and restart the app, or let the rows in with "
            f"./scripts/protolake resume {layer.name} --failing quarantine (or --failing land)"
        )
        return f"{table} is paused: {pause_text(pause)}." + ("" if pause.get("let_in") else remedy)
    why = reading.objects("gold_failed").get(table) if layer.kind == "gold" else None
    if why is not None:
        return (
            f"{table} failed, and the app recomputes it later: {why}. If it fails again and again, "
            f"./scripts/protolake rebuild {layer.name} compares its silver table with bronze and recomputes it"
        )
    return ""
