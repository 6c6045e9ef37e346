"""Counts the rows of all tables at the start, for the status."""

from __future__ import annotations

import pyarrow as pa

from spark_app.lake.files.disk import is_full
from spark_app.lake.files.store_errors import is_store_error
from spark_app.model.causes import DROPPED
from spark_app.model.errors import ContractError
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.worker.table_rows import count_values


def count_rows(opened: OpenLake) -> dict[str, int]:
    """Table -> rows. Also counts the small files for the maintainer."""
    layout, tables = opened.settings.tables.layout, opened.units.committer.tables
    gold = {layout.gold_of(name) for name in opened.tables.admitted.values()}
    others = {*gold, layout.events}  # what the units do not write
    rows = opened.units.maintainer.count_files([name for name in opened.lake.tables() if name not in others])
    for name in gold:
        table = tables.get(name)
        if table is not None:
            rows[name] = sum(table.get_add_actions()["num_records"].to_pylist())
    return rows


def count_open_causes(opened: OpenLake) -> dict[str, int]:
    """Cause -> quarantined records that no replay has resolved; `DROPPED` -> the same of dropped records.

    Raises:
        ContractError: a file is damaged.
    """
    layout = opened.settings.tables.layout
    resolved = _causes(opened, layout.resolved)
    dropped = opened.units.committer.tables.get(layout.dropped)
    found = _causes(opened, layout.quarantine)
    if dropped is not None:
        found[DROPPED] = sum(dropped.get_add_actions()["num_records"].to_pylist())
    left = {cause: count - resolved.get(cause, 0) for cause, count in found.items()}
    return {cause: count for cause, count in left.items() if count}


def _causes(opened: OpenLake, name: str) -> dict[str, int]:
    table = opened.units.committer.tables.get(name)
    try:
        return {} if table is None else count_values(table.to_pyarrow_dataset().to_table(columns=["cause"])["cause"])
    except (OSError, pa.ArrowException) as error:
        if is_full(error) or is_store_error(error):
            raise
        raise ContractError(f"table {name} cannot be read ({error}): restore its files from a backup") from None
