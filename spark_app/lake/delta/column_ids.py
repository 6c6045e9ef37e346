"""Gives each column of a lake a Parquet field id, and keeps it for ever.

_protolake/field_ids.json    {"_topic": 1, "player": 2, "player.name": 3, ...}

A path has one id in all tables. So two columns of a table never share one, and a column has the same id in every file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from spark_app.lake.files.state_files import read_durable, write_durably
from spark_app.lake.lake import Lake
from spark_app.model.columns import NO_IDS, FieldIds


class ColumnIds:
    """Of one lake.

    Attributes:
        assigned: the ids that this object has read or assigned.
    """

    def __init__(self, lake: Lake):
        self._lake = lake
        self.assigned = NO_IDS

    def assign(self, paths: Iterable[str]) -> FieldIds:
        """Ids for at least these paths. New ones are the next numbers, and are durable before a file has them.

        Raises:
            ContractError: the file of ids is damaged.
        """
        wanted = self.assigned.lacking(paths)
        if wanted:
            stored: dict[str, int] = read_durable(self._lake.storage, self._lake.field_ids) or {}
            known = len(stored)
            for path in wanted:
                stored.setdefault(path, len(stored) + 1)
            if len(stored) > known:
                write_durably(self._lake.storage, self._lake.field_ids, json.dumps(stored, indent=0), "field_ids")
            self.assigned = FieldIds(stored)
        return self.assigned
