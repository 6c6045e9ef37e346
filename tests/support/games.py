"""Lakes of one subject whose schema changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from deltalake import DeltaTable
from google.protobuf import json_format

from tests.support.answers import Answers
from tests.support.frames import batch_of, frame
from tests.support.lakes import SmallLake
from tests.support.protos import compile_text, message_class
from tests.support.subjects import Subject

HEAD = "string game_name = 1; string gamer_id = 2; "


class Game:
    """A lake of one subject. A version is the fields that follow those of `HEAD`, or a whole file."""

    def __init__(self, answers: Answers, root: Path, *versions: str, rename: str = "", **more: Any):
        """`more` are policies by kind of change, and sections of the settings."""
        changes = {kind: policy for kind, policy in more.items() if isinstance(policy, str)}
        changes |= {"rename": rename} if rename else {}
        sections = {name: section for name, section in more.items() if not isinstance(section, str)}
        self.subject = Subject(
            answers, *(text if "message" in text else HEAD + text for text in versions), name="t-value"
        )
        self.lake = SmallLake(root, registry={"url": answers.url}, schemas={"changes": changes}, **sections)

    def send(self, version: int, *values: dict[str, Any]) -> None:
        """A unit of records of a version."""
        kind = message_class(compile_text(self.subject.texts[version - 1]), "Event")
        common = {} if "game" in str(values) else {"game_name": "uno", "gamer_id": "g"}
        payloads = [json_format.ParseDict(common | value, kind()).SerializeToString() for value in values]
        framed = [frame(10 + version, payload) for payload in payloads]
        self.lake.take(batch_of(framed, first=self.lake.ends.get(0, 0), topic=self.lake.topic))

    @property
    def silver(self) -> DeltaTable:
        return DeltaTable(str(self.lake.lake.path("silver_uno_events")))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The values of these columns in the order of the records, which all readers find alike."""
        table = self.silver.to_pyarrow_table().sort_by("_offset").select(columns)
        found = [tuple(row.values()) for row in table.to_pylist()]
        frame_ = pl.read_delta(str(self.lake.lake.path("silver_uno_events"))).sort("_offset").select(columns)
        assert frame_.rows() == found
        names = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {names} FROM read_parquet(?, union_by_name = true) ORDER BY _offset"
        assert duckdb.execute(query, [self.silver.file_uris()]).fetchall() == found
        return found

    def columns(self) -> set[str]:
        return {field.name for field in self.silver.schema().fields if not field.name.startswith("_")} - {
            "game_name",
            "gamer_id",
        }

    def quarantined(self) -> list[str]:
        path = str(self.lake.lake.path("quarantine_events"))
        return DeltaTable(path).to_pyarrow_table()["cause"].to_pylist() if DeltaTable.is_deltatable(path) else []

    def check(self) -> None:
        """The second reader agrees."""
        assert self.lake.audit().faults() == {}
