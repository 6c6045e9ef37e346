"""Lakes whose rows have projections, and the key of their `hmac()`."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.compute as pc
from deltalake import DeltaTable

from spark_app.units.driver.reader import FROM_BRONZE
from tests.chaos import read_back
from tests.support.frames import frame
from tests.support.lakes import SmallLake, Taken
from tests.support.protos import PROTO3, compile_text, message_class

KEY = b"a key of 32 bytes, made for tests"
EVENTS = compile_text(
    PROTO3
    + """
message Event {
  string game_name = 1; string gamer_id = 2; optional int64 latency_ms = 3; string device_id = 4; string ssn = 5;
  uint64 large = 6; Home home = 7;
}
message Home { string city = 1; string street = 2; }
""",
    schema_id=7,
)
GROWN = compile_text(
    PROTO3
    + """
message Event {
  string game_name = 1; string gamer_id = 2; optional int64 latency_ms = 3; string device_id = 4; string ssn = 5;
  uint64 large = 6; Home home = 7; string country = 8; bytes picture = 9;
}
message Home { string city = 1; string street = 2; string zip = 3; }
""",
    schema_id=8,
)
MASKED: dict[str, Any] = {
    "drop": ["ssn"],
    "columns": {"gamer_id": "hmac(gamer_id)", "device": "left(device_id, 4) || '***'"},
    "tables": {"uno": {"drop": ["device_id"], "columns": {"fast": "latency_ms < 50"}}},
}
UNO, POKER = "silver_uno_events", "silver_poker_events"


def event(game: str, gamer: str, decodable: Any = EVENTS, **values: Any) -> bytes:
    kind = message_class(decodable, "Event")
    return frame(decodable.key, kind(game_name=game, gamer_id=gamer, **values).SerializeToString())


def key_file(folder: Path, key: bytes = KEY + b"\n") -> str:
    """A file with the key, which only its owner may read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "hmac"
    path.write_bytes(key)
    path.chmod(0o600)
    return str(path)


def lake_of(root: Path, silver: dict[str, Any] | None = None, key: bytes = KEY, **sections: Any) -> SmallLake:
    """A lake with these columns of silver, after the check of its start."""
    settings = {"hmac_key_file": key_file(root.parent / "secrets", key), **(MASKED if silver is None else silver)}
    lake = SmallLake(root, EVENTS, GROWN, silver=settings, **sections)
    lake.units.check_expectations()
    return lake


def hashed(text: str, key: bytes = KEY) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def rows(lake: SmallLake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows by delta-rs and Polars, in the order of their offsets."""
    return pl.read_delta(str(lake.lake.path(table))).sort("_offset").select(columns).rows()


def faults(lake: SmallLake) -> dict[tuple[str, str], int]:
    """Discrepancies but for gold, which these lakes have not got."""
    return {key: count for key, count in lake.audit().counts.items() if key[0] != "gold"}


def columns(lake: SmallLake, table: str) -> list[str]:
    return [field.name for field in DeltaTable(str(lake.lake.path(table))).schema().fields]


def quarantined(lake: SmallLake) -> list[tuple[int, str]]:
    """(offset, cause) of the rows in quarantine."""
    found = DeltaTable(str(lake.lake.path("quarantine_events"))).to_pyarrow_table().sort_by("offset")
    return list(zip(found["offset"].to_pylist(), found["cause"].to_pylist(), strict=True))


def renew(lake: SmallLake, name: str) -> None:
    """As `rebuild NAME --renew --yes`, without Spark."""
    table = lake.settings.layout.silver_of(name)
    offsets = read_back.read(lake.lake.root, table, ["_offset"])["_offset"]
    bronze = DeltaTable(str(lake.lake.path("bronze_events"))).to_pyarrow_table()
    taken = Taken(bronze.filter(pc.is_in(bronze["offset"], value_set=offsets.combine_chunks())).to_batches())
    with lake.opened.renewing([name]):
        report = lake.units.run(taken, lake.opened.units.manifests.last + 1, replace(FROM_BRONZE, renews=True))  # type: ignore[arg-type]
    source: dict[str, Any] = {"request": "r", "records": report.bronze, "progress": {}}
    lake.opened.commit(report, "renew", source)
