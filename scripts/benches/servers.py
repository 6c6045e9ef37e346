"""The app, or what it is compared with, on a broker and a registry of the bench's own: its settings, its process."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from scripts.benches.usage import Meter
from scripts.local import environment, java
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.kafka import Kafka
from scripts.local.options import TOPIC, parse
from scripts.local.registry import Registry

ENDS_S = 30.0  # an app that was asked to stop


def app_settings(lake: Path, brokers: str, registry: str) -> dict[str, str]:
    """Variables for the Spark app, or for whatever is to run with the same settings."""
    options = parse(["--lake", str(lake), "--topic", TOPIC])
    return environment.for_app(options, java.find(), ensure("spark"), brokers, registry)


def spawn(
    arguments: list[str],
    settings: dict[str, str],
    stdout: int | IO[str] = subprocess.DEVNULL,
    stderr: int | IO[str] = subprocess.DEVNULL,
    root: Path = ROOT,
    meter: Meter | None = None,
) -> subprocess.Popen[str]:
    """This Python in a process of its own, with these settings and the user's own environment.

    Args:
        root: the folder whose packages it runs.
        meter: counts what it uses.
    """
    surroundings = os.environ | environment.shared(os.environ) | {"PYTHONPATH": str(root)} | settings
    command = [sys.executable, *arguments]
    command = meter.command(command) if meter else command
    return subprocess.Popen(command, env=surroundings, cwd=root, stdout=stdout, stderr=stderr, text=True)


def stop(process: subprocess.Popen[str]) -> None:
    """Ask it to end, and wait; nothing of it stays."""
    process.terminate()
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def open_servers() -> Iterator[tuple[Path, Kafka, Registry]]:
    """A folder with a broker and a registry that are up; on leaving all is gone."""
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
        folder = Path(name)
        with Kafka(folder) as kafka, Registry(folder) as registry:
            yield folder, kafka, registry


@contextlib.contextmanager
def told(settings: Mapping[str, str]) -> Iterator[None]:
    """The settings in this process's own environment, for as long as the block lasts."""
    before = os.environ.copy()
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
