"""What a rival is told of the topic, and what it leaves behind: each is a process of its own.

Packages of the app are loaded late: a rival that does without them does not pay for them.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.benches.shape import Shape, game_names

if TYPE_CHECKING:
    from spark_app.model.catalog import Decodable

TOPIC, SCHEMA, FLAGS = "BENCH_TOPIC", "BENCH_SCHEMA", "BENCH_FLAGS"


def variables(shape: Shape, flags: str | None = None) -> dict[str, str]:
    """For the process of a rival: the topic, the compiled schema of its newest version, which flags the JVM gets."""
    from scripts.benches import messages

    data, _ = messages.compile_version(shape.message, shape.versions)
    return {
        TOPIC: json.dumps(shape.found()),
        SCHEMA: b64encode(data).decode(),
        FLAGS: flags or "",
    }


def shape() -> Shape:
    """What is in the topic: whoever goes these ways keeps such a list by hand."""
    return Shape(**json.loads(os.environ[TOPIC]))


def games() -> list[str]:
    return game_names(shape().games)


def has_own_flags() -> bool:
    """Whether the JVM gets none of the app's."""
    return os.environ[FLAGS] == "own"


def descriptors() -> bytes:
    """A FileDescriptorSet: the newest version of the schema, which reads older records too."""
    return b64decode(os.environ[SCHEMA])


def copied(lake: Path) -> Path:
    """The checkpoint of the query that fills bronze, where that is a query of its own."""
    return lake / "_protolake" / "copied"


def newest() -> Decodable:
    """The same schema, as the app's decoder takes it."""
    from spark_app.model.catalog import Decodable
    from spark_app.schemas.descriptors import digest

    data = descriptors()
    return Decodable(1, data, digest(data))


def mark(lake: Path, kind: str, batch: int) -> None:
    """As Spark leaves them in a checkpoint, so that all sides are timed alike."""
    path = lake / "_protolake" / "checkpoint" / kind / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
