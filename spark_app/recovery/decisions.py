"""Requests that only decide: about the waiting rows of a paused table, the changes of a schema, or a table's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_app.lake import sql_tables
from spark_app.lake.delta.table_schema import open_table
from spark_app.model.catalog import read_schema_key
from spark_app.model.causes import Cause
from spark_app.model.errors import UsageError
from spark_app.model.reports import Report
from spark_app.model.text import near
from spark_app.protobuf.schemas.ledger import Entry
from spark_app.protobuf.schemas.resolver import RETRY_WAIT_S
from spark_app.recovery.requests import Request, load_progress, save_progress
from spark_app.units.driver.open_lake import OpenLake


class Resume:
    """Lets the waiting rows of a paused table in, although the expectation that they wait for is unchanged.

    Call `step` between two units, with the unit lock.
    """

    def __init__(self, opened: OpenLake, request: Request):
        self._opened = opened
        self._request = request
        self._table = request.arguments["table"]
        self._result = load_progress(opened.lake, opened.units.manifests, request)

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Execute one step: look for the table, or commit the decision, after which the app lets the rows in.

        Returns:
            (an empty report, {}); None if the request is done.

        Raises:
            UsageError: no such table is paused.
        """
        if self._result is None:
            self._find_name()
            self._result = {}
            save_progress(self._opened.lake, self._opened.units.manifests, self._request, self._result)
            return Report(), {}
        if not self._result:
            self._result = self._decide(self._find_name())
        return None

    def conclude(self) -> dict[str, Any]:
        """The result, after the last step."""
        assert self._result is not None
        return self._result

    def _decide(self, name: str) -> dict[str, Any]:
        pause, failing = self._opened.paused.pauses[name], self._request.arguments["failing"]
        result = {"table": name, "rule": pause.rule, "rows": pause.rows, "failing": failing}
        self._opened.resume(name, failing, {"request": self._request.id, "records": 0, "progress": result})
        return result

    def _find_name(self) -> str:
        """The routing name of the table, which a person may name as the silver table, too."""
        layout, paused = self._opened.settings.layout, self._opened.paused.pauses
        found = next((name for name in paused if self._table in (name, layout.silver_of(name))), None)
        if found is None:
            raise UsageError(f"no paused table is named {self._table}; paused: {', '.join(sorted(paused)) or 'none'}")
        return found


class Acceptance:
    """Decides about the changes of a schema whose records are kept out, as a person decided.

    Call `step` between two units, with the unit lock.
    """

    def __init__(self, opened: OpenLake, request: Request):
        self._opened = opened
        self._request = request
        self._key = read_schema_key(request.arguments["schema"])
        self._policy = request.arguments["policy"]
        self._result = load_progress(opened.lake, opened.units.manifests, request)

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """Enter the decision in the ledger and resolve the schema by it. If the registry does not answer now, the
        schema waits for it.

        Returns:
            (an empty report, {}); None if the request is done.

        Raises:
            UsageError: no records of this schema are kept out because of its changes.
        """
        if self._result is not None:
            return None
        entry, schemas = self._find(), self._opened.resolver
        schemas.ledger.accept(self._key, self._policy)
        schemas.ledger.save()
        if entry.outcome != "decodable":
            schemas.resolve(self._key, RETRY_WAIT_S)
            schemas.ledger.save()
        state = schemas.ledger.entries[self._key].outcome
        self._result = {"schema": self._key, "policy": self._policy, "change": entry.detail, "state": state}
        save_progress(self._opened.lake, self._opened.units.manifests, self._request, self._result)
        return Report(), {}

    def conclude(self) -> dict[str, Any]:
        """The result, after the last step."""
        assert self._result is not None
        return self._result

    def _find(self) -> Entry:
        entries = self._opened.resolver.ledger.entries
        entry = entries.get(self._key)
        if entry is not None and (entry.cause == Cause.SCHEMA_CHANGE or entry.accepted == self._policy):
            return entry
        stopped = ", ".join(str(one.key) for one in entries.values() if one.cause == Cause.SCHEMA_CHANGE)
        raise UsageError(f"schema {self._key} waits for no decision; schemas that do: {stopped or 'none'}")


class Drop:
    """Removes a table that no setting and no statement makes. Call `step` between two units, with the unit lock."""

    def __init__(self, opened: OpenLake, request: Request, is_made: Callable[[str], bool]):
        """`is_made`: whether a statement of the SQL files makes the table."""
        self._opened = opened
        self._request = request
        self._is_made = is_made
        self._result: dict[str, Any] | None = None

    def step(self) -> tuple[Report, dict[str, int]] | None:
        """
        Returns:
            (an empty report, {}); None if the request is done.

        Raises:
            UsageError: there is no such table, or it is kept up.
        """
        if self._result is not None:
            return None
        lake, table = self._opened.lake, self._request.arguments["table"]
        rows = self._look(table)
        self._result = {"table": table, "rows": rows, "dropped": not self._request.dry_run}
        if not self._request.dry_run:
            lake.storage.delete(sql_tables.key_of(lake, table))
            lake.storage.delete_all(lake.table(table))
            self._opened.units.committer.forget(table)
            self._opened.units.committer.synced.forget(table)
        return Report(), {}

    def _look(self, table: str) -> int:
        lake, settings = self._opened.lake, self._opened.settings
        tables = lake.tables()
        if table not in {*tables, *sql_tables.names(lake)}:
            raise UsageError(f"the lake has no table {table[:100]}; {near(table, tables)}")
        if table in settings.tables.fixed or settings.layout.is_silver(table):
            raise UsageError(f"{table} has records, and only tables that are made of others can be dropped")
        if settings.layout.is_gold(table) or self._is_made(table):
            raise UsageError(f"{table} is kept up: take it out of the settings or the SQL file, and start the app anew")
        if table not in tables:
            return 0
        return sum(open_table(lake, table).get_add_actions()["num_records"].to_pylist())

    def conclude(self) -> dict[str, Any]:
        """The result, after the last step."""
        assert self._result is not None
        return self._result
