"""What Spark shows of the comments of .proto files: from the registry's answer to DESCRIBE."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from spark_app.app import shell
from spark_app.model.errors import SchemaBump
from tests.spark.parts import ORIGIN, Parts, events, source
from tests.support.answers import Answers

pytestmark = pytest.mark.spark
NewParts = Callable[..., Parts]
FIRST = replace(ORIGIN, bump_in_place=True)  # as the app takes records into a lake without tables
UNO = "silver_uno_events"
MESSAGE = "One thing that a gamer did in a game."


def serve(answers: Answers, parts: Parts, schema_id: int, version: int, text: str) -> None:
    answers.schema(schema_id, text)
    subjects = [{"subject": parts.settings.subject, "version": version}]
    answers[f"/schemas/ids/{schema_id}/versions"] = (200, subjects)


def played(schema_id: int, form: int) -> list[bytes]:
    """An event in a form of the demo's schema, with the frame of the schema id."""
    return [b"\0" + struct.pack(">I", schema_id) + value[5:] for value in events(form, [("uno", "a")])]


def restarted(new_parts: NewParts, parts: Parts, answers: Answers, values: list[bytes]) -> Parts:
    """The app after the bump that the records cause, and after it has taken them."""
    with pytest.raises(SchemaBump):
        parts.take(values)
    again = new_parts(answers.url)
    again.take(values)
    return again


def described(spark: SparkSession, table: str) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE TABLE {table}").collect()
    return {row["col_name"]: row["comment"] for row in rows if row["comment"]}


def table_comment(spark: SparkSession, parts: Parts, name: str) -> str | None:
    found: str | None = spark.sql(f"DESCRIBE DETAIL {stored(parts, name)}").collect()[0]["description"]
    return found


def stored(parts: Parts, name: str) -> str:
    return f"delta.`{parts.lake.path(name)}`"


def operations(parts: Parts) -> list[str]:
    table = parts.committer.tables.get(UNO)
    assert table is not None
    return [commit["operation"] for commit in reversed(table.history())]


def test_describe_shows_the_comments_of_the_newest_version(
    spark: SparkSession, new_parts: NewParts, answers: Answers
) -> None:
    parts = new_parts(answers.url)
    serve(answers, parts, 1, 1, source(1))
    parts.take(played(1, 1), FIRST)
    found = described(spark, stored(parts, UNO))
    assert found["gamer_id"] == "Who played."
    assert found["_offset"].startswith("Kafka offset of the record")
    assert (table_comment(spark, parts, UNO), "bet" in found) == (MESSAGE, False)
    assert table_comment(spark, parts, "bronze_events") == "Every record as Kafka delivered it"
    assert described(spark, stored(parts, "bronze_events"))["value"].startswith("Value of the record")

    serve(answers, parts, 11, 3, source(1).replace("Who played", "Which gamer"))
    parts = restarted(new_parts, parts, answers, played(11, 1))
    assert operations(parts) == ["WRITE", "WRITE"]
    assert described(spark, stored(parts, UNO)) == found

    serve(answers, parts, 3, 4, source(3).replace("Who played", "Which gamer").replace(MESSAGE, 'It\'s a "move" */'))
    parts = restarted(new_parts, parts, answers, played(3, 3))
    after = described(spark, stored(parts, UNO))
    assert (after["gamer_id"], after["col_custom_2"][:13]) == ("Which gamer.", "Second detail")
    assert table_comment(spark, parts, UNO) == 'It\'s a "move" */'

    serve(answers, parts, 2, 2, source(2).replace("Who played", "Old words"))
    parts = restarted(new_parts, parts, answers, played(2, 2))
    assert operations(parts) == ["WRITE", "WRITE", "ADD COLUMN", "WRITE", "WRITE"]
    assert described(spark, stored(parts, UNO)) == after

    shell.register(spark, parts.lake, parts.settings)
    assert described(spark, UNO) == after
    assert spark.sql(f"select count(*), count(col_custom_1) from {UNO}").collect()[0][:] == (4, 2)
    assert parts.read(UNO)["_schema_id"].sort().to_list() == [1, 2, 3, 11]


@pytest.mark.nightly
def test_gold_is_described_too(spark: SparkSession, new_parts: NewParts) -> None:
    parts = new_parts()
    parts.learn(1)
    parts.take(events(1, [("uno", "a"), ("uno", "b")]))
    parts.gold.run()
    found = described(spark, stored(parts, "gold_uno_player_agg"))
    assert found["session_count"] == "Number of rows"
    assert table_comment(spark, parts, "gold_uno_player_agg") == "One row per gamer_id, aggregated from silver"


@pytest.mark.nightly
def test_spark_writes_to_a_table_with_comments(spark: SparkSession, new_parts: NewParts, answers: Answers) -> None:
    """A person may delete rows, or change a comment, while the app is down."""
    parts = new_parts(answers.url)
    serve(answers, parts, 1, 1, source(1))
    parts.take(played(1, 1), FIRST)
    spark.sql(f"ALTER TABLE {stored(parts, UNO)} ALTER COLUMN device_id COMMENT 'Set by hand'")
    spark.sql(f"DELETE FROM {stored(parts, UNO)} WHERE gamer_id = 'a'")
    parts = new_parts(answers.url)
    parts.take(played(1, 1))
    found = described(spark, stored(parts, UNO))
    assert (found["device_id"], found["gamer_id"]) == ("Set by hand", "Who played.")
    assert parts.read(UNO)["_offset"].to_list() == [1]
