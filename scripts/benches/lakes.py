"""Row counts and sizes of a lake, read with delta-rs."""

from pathlib import Path

from deltalake import DeltaTable


def count_rows(lake: Path) -> dict[str, int]:
    """Table -> rows."""
    return {log.parent.name: _rows(log.parent) for log in lake.glob("*/_delta_log")}


def count_silver(rows: dict[str, int]) -> int:
    return sum(count for name, count in rows.items() if name.startswith("silver_"))


def stored_bytes(lake: Path, prefix: str) -> int:
    """Bytes of the current files of the tables whose names begin with `prefix`."""
    tables = [log.parent for log in lake.glob(f"{prefix}*/_delta_log")]
    return sum(sum(DeltaTable(str(table)).get_add_actions()["size_bytes"].to_pylist()) for table in tables)


def gold_made(lake: Path) -> float | None:
    """Time of the last commit to gold, in seconds since 1970; None without gold."""
    return max((entry.stat().st_mtime for entry in lake.glob("gold_*/_delta_log/*.json")), default=None)


def _rows(table: Path) -> int:
    return sum(DeltaTable(str(table)).get_add_actions()["num_records"].to_pylist())
