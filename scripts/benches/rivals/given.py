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
GOLD = "gold_seconds.json"


def shape() -> Shape:
    """What is in the topic: whoever goes these ways keeps such a list by hand."""
    return Shape(**json.loads(os.environ[VARIABLE]))


def games() -> list[str]:
    return game_names(shape().games)


def newest() -> Decodable:
    """The newest version of the schema, which reads older records too: a reader's schema, as in these ways it is."""
    data, _ = messages.compile_version(shape().message, shape().versions)
    return Decodable(1, data, digest(data))


def tell_gold(folder: Path, seconds: float) -> None:
    (folder / GOLD).write_text(json.dumps(seconds))


def gold_seconds(folder: Path) -> float | None:
    path = folder / GOLD
    return float(json.loads(path.read_text())) if path.is_file() else None
