"""How gold tables and tables by SQL are kept up, as text: the command `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_app.followers.gold.spec import GoldSpec
from spark_app.lake import sql_tables
from spark_app.lake.delta.table_schema import columns_of, open_table
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.lake.sql_tables import SqlTable
from spark_app.model.columns import types_of
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.model.gold_functions import GOLD_FUNCTIONS
from spark_app.model.text import in_backticks, near
from spark_app.settings.gold import Aggregate
from spark_app.settings.models import Settings

MODES = {
    "fold": "folded: a run aggregates the new rows of silver alone, and merges them",
    "append": "appended: a run adds what the new rows of silver give",
    "recompute": "recomputed: a run computes the whole table, when a source has changed, and replaces it in one commit",
}
VIEWS = "views.sql"


class Explainer:
    """Of one lake with its settings.

    Raises:
        ConfigurationError: there is no lake.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._lake = Lake(settings.lake_address)
        if not self._lake.storage.exists(self._lake.state):
            raise ConfigurationError(f"lake.path: no lake at {self._lake.uri}")
        self._made = {one.table: one for one in sql_tables.every(self._lake)}
        status = read_json(self._lake.storage, self._lake.status) or {}
        self._failed = status.get("gold_failed", {})
        self._begun = {table: one for table, one in status.get("sql", {}).items() if table not in self._made}
        self._specs = {spec.kind: spec for spec in GoldSpec.all_of(settings)}

    def overview(self) -> list[str]:
        lines = [
            f"{self._settings.layout.pattern_of(kind)}: {self._mode_of(spec)}, every {spec.interval_s:g} s"
            for kind, spec in self._specs.items()
        ]
        for one in self._made.values():
            failed = f"; failed: {one.failed}" if one.failed else ""
            lines.append(f"{one.table}: {one.mode}, every {one.interval_s:g} s{failed}")
        return [*lines, *map(self._without_run, self._begun)]

    def of(self, table: str) -> list[str]:
        """
        Raises:
            UsageError: it is neither a gold table nor a table by SQL.
        """
        kind = self._settings.layout.gold_kind(table)
        if table in self._made:
            return list(self._of_sql(self._made[table]))
        if table in self._begun:
            return [self._without_run(table)]
        if kind is not None:
            return list(self._of_gold(table, self._specs[kind]))
        known = {*self._made, *self._begun, *filter(self._settings.layout.is_gold, self._lake.tables())}
        raise UsageError(f"{table[:100]} is neither a gold table nor one by SQL; {near(table, known)}")

    def _of_sql(self, one: SqlTable) -> Iterator[str]:
        yield f"{one.table}: made by {one.file}:{one.line}, every {one.interval_s:g} s"
        yield f"  {MODES[one.mode]}"
        yield f"  because  {one.why}"
        yield f"  reads    {', '.join(sorted(one.sources)) or 'nothing'}"
        yield f"  last run {one.seconds} s at {one.at}, {one.rows:,} rows, up to unit {one.unit}"
        if one.failed:
            yield f"  failed   {one.failed}"

    def _without_run(self, table: str) -> str:
        one = self._begun[table]
        why = one.get("waits") or self._failed.get(table)
        return f"{table}: no run yet, every {one['interval_s']:g} s{f'; {why}' if why else ''}"

    def _of_gold(self, table: str, spec: GoldSpec) -> Iterator[str]:
        yield f"{table}: {self._mode_of(spec)}, every {spec.interval_s:g} s"
        yield f"  a row for each {', '.join(spec.group) or 'table of silver'}"
        for name, aggregate in spec.aggregates.items():
            field = spec.field_of(aggregate) or "all rows"
            yield f"  {name} = {aggregate.function} of {field}: {cost_of(aggregate)}"

    def _mode_of(self, spec: GoldSpec) -> str:
        return "new rows are merged" if spec.is_incremental else "changed keys are computed anew from all their rows"

    def expand(self, folder: Path) -> list[str]:
        """Write a file for each table by SQL, and one with the temporary views that they read; returns their names."""
        folder.mkdir(parents=True, exist_ok=True)
        views = {name: query for one in self._made.values() for name, query in one.views.items()}
        files = {f"{one.table}.sql": _statement(one) for one in self._made.values()}
        every = self._views_of_lake(" ".join([*views.values(), *(one.query for one in self._made.values())])) | views
        if every:
            texts = (f"CREATE TEMPORARY VIEW {name} AS\n{query};\n" for name, query in every.items())
            files[VIEWS] = "\n".join(texts)
        for name, text in files.items():
            (folder / name).write_text(text)
        return [str(folder / name) for name in sorted(files)]

    def _views_of_lake(self, text: str) -> dict[str, str]:
        """The views that a lake always has, as far as a text names them: other engines do not know them."""
        tables = [name for name in self._lake.tables() if name not in self._made]
        types = {name: types_of(columns_of(open_table(self._lake, name))) for name in tables}
        views = self._settings.views(tables)
        named = (name for name in views.sources if name in text)
        return {name: views.sql(name, types, in_backticks) for name in named}


def cost_of(aggregate: Aggregate) -> str:
    """What a run costs for a column."""
    if aggregate.approximate:
        return "about its value, by a sketch: new rows alone are read"
    if GOLD_FUNCTIONS[aggregate.function].merge is None:
        return "cannot be merged: all rows of the changed keys are read"
    return "new rows alone are read"


def _statement(one: SqlTable) -> str:
    comment = " COMMENT '" + one.comment.replace("'", "\\'") + "'" if one.comment else ""
    interval = f"'{one.interval_s:.0f} seconds'"
    properties = f"TBLPROPERTIES ('pipelines.trigger.interval' = {interval})"
    return f"CREATE MATERIALIZED VIEW {one.table}{comment}\n{properties} AS\n{one.query};\n"
