"""Which layer of the lake a table belongs to, and what the newest reading says of it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_app.model.table_names import TableNames
from spark_app.page.observations import Observations
from spark_app.page.said import ago, amount, per_second, seconds


@dataclass(frozen=True)
class Layer:
    """
    Attributes:
        kind: bronze, silver, gold, quarantine, waiting, dropped, replayed, lost, events, or "table" if none of them.
        name: the routing name of silver and gold; "" for the others.
    """

    kind: str
    name: str = ""

    @staticmethod
    def of(layout: TableNames, table: str) -> Layer:
        single = {
            layout.bronze: "bronze",
            layout.quarantine: "quarantine",
            layout.deferred: "waiting",
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
            before, after = layout.gold.split("{name}")
            return Layer("gold", table.removeprefix(before).removesuffix(after))
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
            case "waiting" | "dropped":
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
            return rows | {"records/s": per_second(rate), "age of the newest row": seconds(reading.age_s)}
        case "silver":
            return {
                "rows": amount(reading.each("tables", "silver").get(layer.name)),
                "rows/s": per_second(observed.rate_of(layer.name)),
                "new rows": ago(observed.silent_s(layer.name)),
            }
        case "gold":
            behind = reading.each("followers", "lag").get("gold")
            failed = layout.gold_of(layer.name) in reading.objects("gold_failed")
            state = "failed" if failed else "up to date" if not behind else f"{amount(behind)} units behind"
            return {"keys": amount(reading.each("tables", "gold").get(layer.name)), "gold": state}
        case "quarantine":
            return {"open records": amount(sum(reading.counts("quarantine").values()))}
        case "waiting":
            return {"records": amount(reading.number("deferred"))}
        case "dropped":
            return {"records": amount(reading.number("dropped"))}
    return {}


def trouble(observed: Observations, layer: Layer, table: str) -> str:
    """What keeps rows out of the table, and which command helps; "" = nothing."""
    reading = observed.newest
    pause = reading.objects("paused").get(layer.name) if layer.kind == "silver" else None
    if isinstance(pause, dict):
        return (
            f"{table} is paused: {amount(pause.get('rows'))} rows wait, because the record {pause.get('record')} fails "
            f"the rule {pause.get('rule')}. Change the rule and restart the app, or let the rows in with "
            f"./scripts/protolake resume {layer.name} --failing quarantine (or --failing land)"
        )
    why = reading.objects("gold_failed").get(table) if layer.kind == "gold" else None
    if why is not None:
        return (
            f"{table} failed, and the app recomputes it later: {why}. If it fails again and again, "
            f"./scripts/protolake rebuild {layer.name} compares its silver table with bronze and recomputes it"
        )
    return ""
