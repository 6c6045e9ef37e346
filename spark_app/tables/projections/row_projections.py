"""Gives rows of silver the columns of their definitions, before they are written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from spark_app.lake.files.hmac_key import fingerprint_of, read_key
from spark_app.lake.files.storage import Storage
from spark_app.model.definitions import Definitions, Projection
from spark_app.model.errors import UnreachableError
from spark_app.tables.expectations.checks import LINEAGE, fields_named, select_fields
from spark_app.tables.references.joining import join
from spark_app.tables.route import pick
from spark_app.tables.sql.expressions import evaluate
from spark_app.tables.sql.names import columns_in


def project(rows: pa.Table, projection: Projection, types: pa.Schema, key: bytes | None) -> pa.Table:
    """The rows of silver with the columns of the projection. New columns stand before those of the lineage.

    Args:
        rows: of one table, with the columns of the message and of the lineage.
        types: the types of columns that the rows may lack; such a column is NULL.
        key: of `hmac()`; None if no expression calls it.

    Raises:
        NoType: the text names the column.
    """
    named = {name for _, text in projection.columns for name in columns_in(text)}
    needed = select_fields(rows, fields_named(named, rows.schema, types))
    made = evaluate(needed, dict(projection.columns), key)
    by_name = {name.casefold(): name for name in made}
    dropped = {name.casefold() for name in projection.drops}
    fields: dict[str, pa.ChunkedArray] = {}
    for name in rows.column_names:
        own = by_name.pop(name.casefold(), None)
        if name == LINEAGE.names[0]:
            fields |= {new: made[new] for folded, new in by_name.items() if not folded.startswith("_")}
        if own is not None:
            fields[own] = made[own]
        elif name.casefold() not in dropped:
            fields[name] = rows.column(name)
    return pa.table(fields | {new: made[new] for new in by_name.values()})


class RowProjections:
    """Of one task."""

    def __init__(self, definitions: Definitions, hmac_key_file: str, storage: Storage):
        self._by_number = definitions.projections()
        self._key_file = hmac_key_file
        self._storage = storage

    def split(self, rows: pa.Table, numbers: np.ndarray | None, types: pa.Schema) -> Iterator[pa.Table]:
        """The rows by their definitions, with the columns of these.

        Args:
            numbers: for each row the number of its definition, 0 = none; None = no row has one.
            types: the types of columns that the rows may lack.

        Raises:
            UnreachableError: the key was changed after the unit was planned.
            NoType: an expression has no type; the plan makes sure that each has one.
        """
        if numbers is None or not self._by_number:
            yield rows
            return
        for number in np.unique(numbers).tolist():
            projection = self._by_number.get(number)
            own = np.flatnonzero(numbers == number)
            part = rows if len(own) == len(numbers) else pick(rows, own)
            if not number:
                yield part.drop_columns(["_definition"])
            elif projection is None:
                yield part
            else:
                joined = join(part, projection.joins, types, self._storage)
                yield project(joined, projection, types, self._key_of(projection.key))

    def _key_of(self, fingerprint: str) -> bytes | None:
        if not fingerprint:
            return None
        if fingerprint_of(self._key) != fingerprint:
            raise UnreachableError("the key of silver.hmac_key_file was changed during a unit, which is made again")
        return self._key

    @cached_property
    def _key(self) -> bytes:
        return read_key(self._key_file)
