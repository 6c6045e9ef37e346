"""The compose file as it is, under a project name, a lake and ports of its own."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.local.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "protolake-e2e"


def missing() -> str | None:
    """Why there is no Docker with Compose v2 to test with; None when there is."""
    for command in (["docker", "compose", "version"], ["docker", "info"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{' '.join(command)}: {error}"
        if done.returncode:
            return f"{' '.join(command)}: {done.stderr.strip() or 'it failed'}"
    return None


class Stack:
    """One project of the compose file. `folder` gets the lake, which Docker itself creates, and has a settings file."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` of `docker compose` come before its command."""
        self._options = options
        self.lake = folder / "lake"
        self.settings = folder / "protolake.toml"
        self.settings.write_text("[gold]\ninterval_s = 2.5\n[schemas]\nresolve_timeout_s = 60\n")
        kafka_port, registry_port, page_port, self.postgres_port = free_ports(4)
        self.brokers = f"127.0.0.1:{kafka_port}"
        self.page = f"http://127.0.0.1:{page_port}"
        self._environment = os.environ | {
            "LAKE_DIR": str(self.lake),
            "PROTOLAKE_SETTINGS_FILE": str(self.settings),
            "KAFKA_PORT": str(kafka_port),
            "REGISTRY_PORT": str(registry_port),
            "PAGE_PORT": str(page_port),
            "POSTGRES_PORT": str(self.postgres_port),
        }
        if os.getuid():  # the tests read the lake, which its owner and group alone may
            self._environment |= {"PROTOLAKE_UID": str(os.getuid()), "PROTOLAKE_GID": str(os.getgid())}

    def run(self, *arguments: str, stdin: str | None = None, **variables: str) -> str:
        """`docker compose ...`; its standard output. Fails with both outputs."""
        done = subprocess.run(
            ["docker", "compose", "-p", PROJECT, "--ansi", "never", *self._options, *arguments],
            cwd=ROOT,
            env=self._environment | variables,
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def container(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's only container."""
        (found,) = self.containers(service)
        return found

    def containers(self, service: str) -> list[dict[str, Any]]:
        """What the engine knows of a service's containers."""
        names = self.run("ps", "-aq", service).split()
        done = subprocess.run(["docker", "inspect", *names], capture_output=True, text=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def status(self) -> dict[str, Any]:
        """What the app says of itself; empty before it says anything."""
        path = self.lake / "_protolake" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def ask_page(self, path: str, token: str = "") -> tuple[int, str]:
        """Status and text of an answer of the page."""
        asked = urllib.request.Request(f"{self.page}{path}", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def wait(self, what: str, ready: Callable[[dict[str, Any]], bool], seconds: float = 150) -> None:
        """Until the app's status is as wanted."""
        deadline = time.monotonic() + seconds
        while not ready(self.status()):
            assert time.monotonic() < deadline, f"no {what} in {seconds} s: {self.status()}\n{self.run('logs')}"
            time.sleep(0.5)

    def remove(self) -> None:
        """Containers, volumes, network, and the files of the lake, which may belong to another user."""
        remove_containers()  # a page that is still there would make its folders again
        if self.lake.exists():
            self.run("run", "--rm", "--no-deps", "--entrypoint", "sh", "spark", "-c", "find /lake -mindepth 1 -delete")
        # Compose 2.26 cannot take down what an interrupted `up` left: "could not find setup: not found".
        remove_containers()
        self.run("--profile", "*", "down", "-v", "--remove-orphans")


def remove_containers() -> None:
    """End and remove every container of the project."""
    label = f"label=com.docker.compose.project={PROJECT}"
    found = subprocess.run(["docker", "ps", "-aq", "--filter", label], capture_output=True, text=True, check=True)
    if names := found.stdout.split():
        subprocess.run(["docker", "rm", "--force", "--volumes", *names], capture_output=True, check=True)
