"""Opens tables of a lake with delta-rs, wherever the lake is."""

from __future__ import annotations

from deltalake import DeltaTable

from spark_app.lake.lake import Lake


def open_table(lake: Lake, name: str) -> DeltaTable:
    """A new handle of an existing table, at its newest version.

    Raises:
        ContractError: the name is not a plain folder name.
    """
    return DeltaTable(lake.storage.uri(lake.table(name)), storage_options=lake.storage.delta_options)
