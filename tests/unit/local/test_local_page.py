"""The page of a stack: a program of its own, with real processes, while the app is down."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scripts.local.claim import Claim
from scripts.local.errors import LocalError
from scripts.local.options import parse
from scripts.local.ports import HOST, free_port
from scripts.local.program import Program
from scripts.local.stack import Stack
from spark_app.lake.lake import Lake
from spark_app.page.files import PageFiles
from spark_app.page.server import listen
from spark_app.settings.watching import Page
from tests.support.pages import link

pytestmark = pytest.mark.timeout(180)
OWN = ["--brokers", "k:1", "--registry", "http://127.0.0.1:1"]
HELD = "import sys; print('protolake: kafka.topic: no'); sys.exit(78)"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stack]]:
    """Starts stacks whose app ends with 78."""
    lake, stacks = tmp_path / "lake", []
    for name in ("java.find", "ensure"):
        monkeypatch.setattr(f"scripts.local.stack.{name}", lambda *_: None)
    monkeypatch.setattr("scripts.local.stack.environment.for_app", lambda *_: {"PROTOLAKE_LAKE__PATH": str(lake)})

    def starting(*options: str) -> Stack:
        claim = Claim(tmp_path / "state")
        assert claim.acquire()
        stack = Stack(parse(["--state", str(tmp_path / "state"), "--lake", str(lake), *OWN, *options]), claim)
        programs = stack._programs

        def with_held_app(*given: Any) -> list[Program]:
            held = [sys.executable, "-c", HELD]
            return [replace(one, command=held) if one.name == "spark" else one for one in programs(*given)]

        monkeypatch.setattr(stack, "_programs", with_held_app)
        stacks.append((stack, claim))
        stack.up()
        return stack

    yield starting
    for stack, claim in stacks:
        stack.down()
        claim.release()


def wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 90
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def states(stack: Stack) -> dict[str, tuple[str, int | None]]:
    return {one.name: (one.state, one.code) for one in stack.supervisor.processes()}


def test_the_page_is_there_without_the_app_and_ends_with_the_stack(start: Callable[..., Stack]) -> None:
    stack = start("--page-port", "0")
    shown = wait_for(lambda: stack.look().page)
    wait_for(lambda: states(stack).get("spark") == ("exited", 78))
    assert states(stack)["page"] == ("running", None)
    [line] = stack.look().troubles
    assert line.startswith("spark is down (exit code 78): protolake: kafka.topic: no; a restart cannot help: mend that")
    lake = Path(stack.options.lake)
    url, _, token = link(Lake(lake)).partition("/?token=")
    assert shown == f"{url}/ (token: {lake}/_protolake/page/token)"
    assert url.startswith(f"http://{HOST}:")
    assert httpx2.get(f"{url}/health", timeout=30).status_code == 401
    said = httpx2.get(f"{url}/health?token={token}", timeout=30)
    assert (said.status_code, said.json()["problem"]) == (503, "no status yet")
    logs = "".join(log.read_text() for log in (stack.options.state / "logs").glob("*.log"))
    assert "the page listens" in logs
    assert token not in logs
    assert stat.S_IMODE((lake / "_protolake").stat().st_mode) == 0o750
    assert stat.S_IMODE((lake / "_protolake/page/token").stat().st_mode) == 0o600
    stack.down()
    assert PageFiles(Lake(lake)).address() is None


def test_a_port_in_use_is_reported_with_the_remedy_and_stops_nothing_else(start: Callable[..., Stack]) -> None:
    port = free_port()
    with listen(Page(port=port)):
        stack = start("--page-port", str(port))
        wait_for(lambda: states(stack).get("page") == ("exited", 78))
    [line] = [line for line in stack.look().troubles if line.startswith("page")]
    assert line.startswith("page is down (exit code 78): protolake: page.port: cannot listen on ")
    assert line.endswith("; start the stack with another --page-port (0 = a free one), or with --no-page")
    assert stack.supervisor.dead() == []
    assert stack.look().page is None


def test_settings_that_the_app_would_refuse_start_nothing(start: Callable[..., Stack], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[expectations.a]\ncheck = "bet >"\naction = "warn"\n[silver.columns]\nx = "uper(a)"\n')
    with pytest.raises(
        LocalError, match=r"^expectations\.a\.check: is not .*; silver\.columns\.x: there is no"
    ) as refused:
        start("--settings", str(file))
    assert refused.value.code == 78
    assert not (tmp_path / "state" / "logs").exists()


def test_a_stack_without_a_page_makes_nothing_for_one(start: Callable[..., Stack]) -> None:
    stack = start("--no-page")
    wait_for(lambda: states(stack).get("spark") == ("exited", 78))
    assert list(states(stack)) == ["spark"]
    assert os.listdir(stack.options.lake) == []
