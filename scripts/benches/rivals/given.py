"""What a rival is told of the topic, and what it leaves behind: each is a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

from scripts.benches import messages
from scripts.benches.shape import Shape, game_names
from spark_app.records import Decodable
from spark_app.schemas.descriptors import digest

VARIABLE = "BENCH_TOPIC"


def shape() -> Shape:
    """What is in the topic: whoever goes these ways keeps such a list by hand."""
    return Shape(**json.loads(os.environ[VARIABLE]))


def games() -> list[str]:
    return game_names(shape().games)


def copied(lake: Path) -> Path:
    """The checkpoint of the query that fills bronze, where that is a query of its own."""
    return lake / "_protolake" / "copied"


def newest() -> Decodable:
    """The newest version of the schema, which reads older records too: a reader's schema, as in these ways it is."""
    data, _ = messages.compile_version(shape().message, shape().versions)
    return Decodable(1, data, digest(data))
