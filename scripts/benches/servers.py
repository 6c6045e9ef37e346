"""A broker and a registry of the bench's own, in a folder that is thrown away; and what the app is told of them."""

from pathlib import Path

from scripts.local import environment, java
from scripts.local.downloads import ensure
from scripts.local.options import TOPIC, parse

COMPATIBILITY = "BACKWARD_TRANSITIVE"  # the embedded registry's FULL refuses every added field


def app_settings(lake: Path, brokers: str, registry: str) -> dict[str, str]:
    """Variables for the Spark app, or for whatever is to run with the same settings."""
    options = parse(["--lake", str(lake), "--topic", TOPIC])
    return environment.for_app(options, java.find(), ensure("spark"), brokers, registry)
