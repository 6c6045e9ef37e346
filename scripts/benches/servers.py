"""Runs the app, or an alternative, as a process with its settings, on a broker and a registry of the bench."""

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

ENDS_S = 30.0  # within this time the app ends after SIGTERM


def app_settings(lake: Path, brokers: str, registry: str) -> dict[str, str]:
    """Variables for the Spark app, or for an alternative with the same settings."""
    options = parse(["--lake", str(lake), "--topic", TOPIC, "--no-producer"])  # without the rules of the demo
    return environment.for_app(options, java.find(), ensure("spark"), brokers, registry)


def spawn(
    arguments: list[str],
    settings: dict[str, str],
    stdout: int | IO[str] = subprocess.DEVNULL,
    stderr: int | IO[str] = subprocess.DEVNULL,
    root: Path = ROOT,
    meter: Meter | None = None,
) -> subprocess.Popen[str]:
    """Start this Python as a process with these settings and the user's environment.

    Args:
        root: the folder whose packages it imports.
        meter: measures its CPU time.
    """
    surroundings = os.environ | environment.shared(os.environ) | {"PYTHONPATH": str(root)} | settings
    command = [sys.executable, *arguments]
    command = meter.command(command) if meter else command
    return subprocess.Popen(command, env=surroundings, cwd=root, stdout=stdout, stderr=stderr, text=True)


def stop(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM and wait; kill the process if it does not end in time."""
    process.terminate()
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def open_servers() -> Iterator[tuple[Path, Kafka, Registry]]:
    """A folder with a running broker and registry; at the end all are removed."""
    with tempfile.TemporaryDirectory(prefix="protolake-bench-") as name:
        folder = Path(name)
        with Kafka(folder) as kafka, Registry(folder) as registry:
            yield folder, kafka, registry


@contextlib.contextmanager
def changed_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set the settings in this process's environment for the duration of the block."""
    before = os.environ.copy()
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
