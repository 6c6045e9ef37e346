"""Options and results of an alternative, which is a separate process.

The app's packages are imported late, so that an alternative that does not use them does not pay for them.
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
    """Variables for the process of a rival: the topic, the compiled schema of its newest version, and the JVM flags to
    use."""
    from scripts.benches import messages

    data, _ = messages.compile_version(shape.message, shape.versions)
    return {
        TOPIC: json.dumps(shape.found()),
        SCHEMA: b64encode(data).decode(),
        FLAGS: flags or "",
    }


def shape() -> Shape:
    """The content of the topic; users of these alternatives would maintain the list of games by hand."""
    return Shape(**json.loads(os.environ[TOPIC]))


def games() -> list[str]:
    return game_names(shape().games)


def has_own_flags() -> bool:
    """True if the JVM gets none of the app's flags."""
    return os.environ[FLAGS] == "own"


def descriptors() -> bytes:
    """A FileDescriptorSet: the newest version of the schema, which also reads older records."""
    return b64decode(os.environ[SCHEMA])


def copied(lake: Path) -> Path:
    """The checkpoint of the query that fills bronze, if that is a separate query."""
    return lake / "_protolake" / "copied"


def newest() -> Decodable:
    """The same schema, in the form of the app's decoder."""
    from spark_app.model.catalog import Decodable
    from spark_app.protobuf.schemas.descriptors import digest

    data = descriptors()
    return Decodable(1, data, digest(data))


def mark(lake: Path, kind: str, batch: int) -> None:
    """Write the marks that Spark writes to a checkpoint, so that all sides are timed equally."""
    path = lake / "_protolake" / "checkpoint" / kind / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
