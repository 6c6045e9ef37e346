"""What a lake holds, asked of delta-rs."""

from pathlib import Path

from deltalake import DeltaTable


def count_rows(lake: Path) -> dict[str, int]:
    """Table -> rows."""
    return {log.parent.name: _rows(log.parent) for log in lake.glob("*/_delta_log")}


def count_silver(rows: dict[str, int]) -> int:
    return sum(count for name, count in rows.items() if name.startswith("silver_"))


def _rows(table: Path) -> int:
    return sum(DeltaTable(str(table)).get_add_actions()["num_records"].to_pylist())
