"""What the columns about the record are made of: they are the same in every lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_app.model.record_schemas import LINEAGE_SCHEMA, SOURCE_SCHEMA
from spark_app.model.table_names import TableNames
from spark_app.page.lineage.graph import APP, By, Edge, Kind, Place
from spark_app.units.worker.table_rows import LINEAGE_OF

OF_BRONZE = {**LINEAGE_OF, "_schema_id": "schema_id", "_schema_guid": "schema_guid", "_key": "key"}
OF_TOPIC = {
    **{name: name for name in SOURCE_SCHEMA.names},
    "topic_id": "topic",
    **dict.fromkeys(("schema_id", "schema_guid"), "value"),
    **dict.fromkeys(("omitted_bytes", "omitted_sha256"), "value"),
}


def side_outputs(layout: TableNames) -> dict[str, tuple[str, Kind, str]]:
    """Table -> (kind of its node, how records get there, from which table)."""
    return {
        layout.quarantine: ("quarantine", "quarantine", layout.bronze),
        layout.deferred: ("deferred", "defer", layout.bronze),
        layout.dropped: ("dropped", "drop", layout.bronze),
        layout.resolved: ("resolved", "replay", layout.quarantine),
    }


def bronze_edges(bronze: str, columns: Iterable[str], topics: Sequence[str]) -> Iterator[Edge]:
    """The edges to each column of bronze."""
    for column in columns:
        of_topic = OF_TOPIC.get(column)
        if of_topic is None:
            yield Edge(Place(APP), Place(bronze, column), By("made"))
        else:
            by = By("record" if column == of_topic else "derived")
            yield from (Edge(Place(f"topic:{topic}", of_topic), Place(bronze, column), by) for topic in topics)


def side_edges(table: str, columns: Iterable[str], origin: str, there: Iterable[str]) -> Iterator[Edge]:
    """The edges to each column of a side output.

    Args:
        there: the columns of the table that the records come from.
    """
    known = set(there) - {"table"}  # each side output means another table by it
    for column in columns:
        target = Place(table, column)
        if column in known:
            yield Edge(Place(origin, column), target, By("record"))
        else:
            yield Edge(Place(APP), target, By("made"))


def record_edges(silver: str, bronze: str) -> Iterator[Edge]:
    """The edges to the columns about the record that every silver table has."""
    for column in LINEAGE_SCHEMA.names:
        yield Edge(Place(bronze, OF_BRONZE[column]), Place(silver, column), By("record"))
