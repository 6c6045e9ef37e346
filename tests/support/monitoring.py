"""A real Alertmanager and a real Prometheus on the loopback: the programs of the machine, with data and log in a folder
of the test. Without the program the test is skipped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scripts.local.ports import HOST
from scripts.local.server import Server


def program(package: str, *names: str) -> str:
    """The path of the first of these programs that there is."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no {names[0]} here: apt-get install {package}")
    return found


class Watcher(Server):
    """What the two servers have in common."""

    option = "another run"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def config(self) -> Path:
        return self.folder / "config.yml"

    def is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False


class Alertmanager(Watcher):
    """It tells a webhook at once what it hears, and never again."""

    name = "alertmanager"

    def __init__(self, state: Path, hook: str):
        super().__init__(state)
        self._hook = hook
        self._program = program("prometheus-alertmanager", "prometheus-alertmanager", "alertmanager")

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        pauses = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "4h"}
        route = {"receiver": "hook", "group_by": ["alertname", "lake"], **pauses}
        receiver = {"name": "hook", "webhook_configs": [{"url": self._hook, "send_resolved": True}]}
        self.config.write_text(json.dumps({"route": route, "receivers": [receiver]}))  # which is YAML, too

    def command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self.config}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--cluster.listen-address=",
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it has and that have not ended."""
        found: list[dict[str, Any]] = httpx2.get(f"{self.url}/api/v2/alerts", timeout=10).raise_for_status().json()
        return found


class Prometheus(Watcher):
    name = "prometheus"

    def __init__(self, state: Path, config: str):
        """`config`: the text of its file."""
        super().__init__(state)
        self._text = config
        self._program = program("prometheus", "prometheus")

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(self._text)

    def command(self) -> list[str]:
        return [
            self._program,
            f"--config.file={self.config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
        ]

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer below /api/v1/, which has to be a success."""
        answer = httpx2.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", (parameters, answer)
        assert not answer.get("warnings"), (parameters, answer)
        return answer["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of each series that an expression has now."""
        found = self.ask("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]
