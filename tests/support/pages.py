"""`protolake page` as a process on a free port."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2

from spark_app.lake.lake import Lake
from spark_app.page.files import PageFiles

ROOT = Path(__file__).parents[2]


class Running:
    """
    Attributes:
        url: without a slash at its end.
        token: of the page, from its file.
        printed: all that it has written when the block has ended.
        visits: what is closed before the page ends. A browser would complain of a page that leaves while it loads.
    """

    def __init__(self, process: "subprocess.Popen[str]", lake: Lake, printed: str):
        self.process = process
        found = re.search(r"address=(http://127.0.0.1:\d+)/ ", printed)
        assert found, printed
        self.url, self.token = found[1], PageFiles(lake).token()
        self.printed = printed
        self.visits = contextlib.ExitStack()

    def get(self, path: str, token: str | None = None, **more: Any) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.get(f"{self.url}{path}", headers=bearer | more.pop("headers", {}), timeout=30, **more)


@contextlib.contextmanager
def page(lake: Lake, settings: str = "") -> Iterator[Running]:
    """A process until the end of the block, which stops it if the block has not. `settings`: TOML after the port."""
    file = lake.root.parent / "page.toml"
    file.write_text(f"[page]\nport = 0\n{settings}")
    command = [sys.executable, "-m", "spark_app", "page", "--lake", str(lake.root), "--settings", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    try:
        printed = line = process.stdout.readline()
        while line.startswith("time=") and "address=" not in line:  # an alert may fire before
            printed += (line := process.stdout.readline())
        running = Running(process, lake, printed)
        with running.visits:
            yield running
        process.terminate()
        running.printed += process.stdout.read()
        process.wait(120)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def link(lake: Lake) -> str:
    """Where a browser reaches the page that runs; "" if none does."""
    address, files = PageFiles(lake).address(), PageFiles(lake)
    return f"{address.partition(' ')[0]}?token={files.token()}" if address else ""


def first_view(command: Sequence[str], variables: dict[str, str], folder: Path, lake: Lake) -> httpx2.Response:
    """What a browser gets of a page with a token that is started in a folder, with these variables and a free port."""
    variables = variables | {"PROTOLAKE_PAGE__PORT": "0", "PROTOLAKE_LAKE__PATH": str(lake.root)}
    process = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout
        assert b"the page listens" in process.stdout.readline()
        return httpx2.get(link(lake), follow_redirects=True, headers={"Accept": "text/html"}, timeout=30)
    finally:
        process.kill()
        process.communicate()
