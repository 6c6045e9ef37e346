"""A broker and a registry of the bench's own, in a folder that is thrown away; and what the app is told of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from scripts.local import environment, java
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.options import TOPIC, parse

COMPATIBILITY = "BACKWARD_TRANSITIVE"  # the embedded registry's FULL refuses every added field


def app_settings(lake: Path, brokers: str, registry: str) -> dict[str, str]:
    """Variables for the Spark app, or for whatever is to run with the same settings."""
    options = parse(["--lake", str(lake), "--topic", TOPIC])
    return environment.for_app(options, java.find(), ensure("spark"), brokers, registry)


def spawn(
    arguments: list[str],
    told: dict[str, str],
    stdout: int | IO[str] = subprocess.DEVNULL,
    stderr: int | IO[str] = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """This Python in a process of its own, with what it is told and the user's own environment."""
    surroundings = os.environ | environment.shared(os.environ) | told
    return subprocess.Popen(
        [sys.executable, *arguments], env=surroundings, cwd=ROOT, stdout=stdout, stderr=stderr, text=True
    )
