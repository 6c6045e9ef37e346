"""Views over the tables of a lake, in SQL that Spark and DuckDB understand alike: all silver tables as one, all gold
tables of a kind as one, and the windows to which no row is expected any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from spark_app.model.table_names import GOLD, TableNames

TABLE = "_table"  # the column with the routing name in a view of several tables
Types = Mapping[str, Mapping[str, str]]  # table -> column -> its type as text


class Views:
    """
    Attributes:
        sources: view -> the tables that it reads. A table of the lake hides a view of its name.
    """

    def __init__(self, layout: TableNames, late_s: Mapping[str, int], tables: Collection[str]):
        """
        Args:
            late_s: kind of gold tables with windows -> how many seconds late a row may come.
            tables: those of the lake.
        """
        self._layout = layout
        found = {"silver_all": [name for name in tables if layout.is_silver(name)]}
        self._late_of: dict[str, int] = {}
        for table in tables:
            kind = layout.gold_kind(table)
            if kind is None:
                continue
            found.setdefault("gold_all" if kind == GOLD else f"gold_all_{kind}", []).append(table)
            if kind in late_s:
                found[f"final_{table}"] = [table]
                self._late_of[f"final_{table}"] = late_s[kind]
        self.sources = {name: sorted(own) for name, own in found.items() if own and name not in tables}

    @staticmethod
    def is_reserved(name: str) -> bool:
        """Whether the name is one of a view that a lake has, or may come to have."""
        return name in ("silver_all", "gold_all") or name.startswith(("gold_all_", "final_"))

    def is_united(self, name: str) -> bool:
        """Whether the view has all rows of its tables, with `TABLE`."""
        return name not in self._late_of

    def sql(self, name: str, types: Types, quote: Callable[[str], str]) -> str:
        """The query of a view."""
        tables = self.sources[name]
        if name in self._late_of:
            [table] = map(quote, tables)
            newest = f"(SELECT max({quote('_watermark')}) FROM {table})"
            late = f"INTERVAL '{self._late_of[name]}' SECOND"
            return f"SELECT * FROM {table} WHERE {quote('window_end')} + {late} <= {newest}"
        every = list(dict.fromkeys(column for table in tables for column in types[table]))
        mixed, parts = self.mixed(name, types), []
        for table in tables:
            is_silver = self._layout.is_silver(table)
            routing = self._layout.name_of(table) if is_silver else self._layout.gold_name_of(table)
            chosen = [f"'{routing}' AS {quote(TABLE)}"]
            for column in every:
                value = quote(column) if column in types[table] else "NULL"
                chosen.append(f"{f'CAST({value} AS STRING)' if column in mixed else value} AS {quote(column)}")
            parts.append(f"SELECT {', '.join(chosen)} FROM {quote(table)}")
        return " UNION ALL ".join(parts)

    def mixed(self, name: str, types: Types) -> list[str]:
        """The columns of a view of several tables that are text because their types differ."""
        kinds: dict[str, set[str]] = {}
        for table in self.sources[name]:
            for column, kind in types[table].items():
                kinds.setdefault(column, set()).add(kind)
        return [column for column, found in kinds.items() if len(found) > 1]
