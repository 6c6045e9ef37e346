"""Reference tables of players, as somebody else may write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

Row = tuple[str | int | None, str | None, Any]  # player, country, tier

INT64, STRING = pa.int64(), pa.string()


def write(folder: Path, *rows: Row, kind: pa.DataType = INT64, key: pa.DataType = STRING) -> str:
    """Write a Delta table with these rows alone; returns its path."""
    players, countries, tiers = zip(*rows, strict=True) if rows else ((), (), ())
    table = {
        "player": pa.array(players, key),
        "country": pa.array(countries, pa.string()),
        "tier": pa.array(tiers, kind),
    }
    path = str(folder / "players")
    write_deltalake(path, pa.table(table), mode="overwrite", schema_mode="overwrite")
    return path


def section(path: str, **others: Any) -> dict[str, Any]:
    """The settings `reference`, which look for a new version at each unit."""
    own = {"path": path, "key": "player", "on": "gamer_id", "columns": ["country", "tier"], "refresh_s": 1e-6}
    return {"players": own | others}
