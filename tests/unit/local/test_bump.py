import os
import subprocess
import time
from pathlib import Path

import pytest

from scripts.local.artifacts import ROOT
from scripts.local.bump import bump, note
from scripts.local.errors import USAGE, LocalError
from scripts.local.options import parse
from scripts.local.program import Program, attended
from scripts.local.supervision import Supervisor


def begin(state: Path, *given: str) -> list[str]:
    """A stack that was started with these options; the arguments that name its folder."""
    here = ["--state", str(state)]
    (state / "run").mkdir(parents=True)
    note(parse([*here, *given]))
    return here


def refusal(*arguments: str) -> str:
    with pytest.raises(LocalError) as refused:
        bump(parse(arguments), 1)
    assert refused.value.code == USAGE
    return str(refused.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--lake", "elsewhere"], "a different --lake:"),
        (["--lake", "s3://games/other"], "a different --lake:"),
        (["--topic", "scores"], "a different --topic:"),
        (["--page-port", "0", "--no-page"], "a different --page and --page-port:"),
        (["--kafka-port", "9192", "--no-producer"], "a different --kafka-port and --producer:"),
    ],
)
def test_a_second_run_that_wants_something_else_is_refused(tmp_path: Path, given: list[str], named: str) -> None:
    here = begin(tmp_path)
    assert named in refusal(*here, *given)


@pytest.mark.parametrize(
    ("name", "value", "said"), [("RATES", "9", "did you mean PRODUCER_RATE"), ("RATE", "fast", "PRODUCER_RATE: ")]
)
def test_a_variable_that_the_producer_refuses_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    name: str,
    value: str,
    said: str,
) -> None:
    here = begin(tmp_path)
    supervisor = Supervisor(tmp_path)
    path = Program("producer", ["sleep", "60"], {"PRODUCER_RATE": "50"}).write(supervisor.run)
    (supervisor.run / "order").write_text("producer")
    attendant = subprocess.Popen(attended(path), cwd=ROOT)
    request.addfinalizer(lambda: (attendant.terminate(), attendant.wait(60)))
    deadline = time.monotonic() + 60
    while not supervisor.processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    monkeypatch.setenv(f"PRODUCER_{name}", value)
    monkeypatch.setattr(Supervisor, "relaunch", None)  # nothing is restarted
    with pytest.raises(LocalError, match=said) as refused:
        bump(parse(here), 1)
    assert (refused.value.code, "nothing changed" in str(refused.value)) == (78, True)
    assert Program.read(supervisor.run / "producer.json").environment == {"PRODUCER_RATE": "50"}
    assert os.environ[f"PRODUCER_{name}"] == value


@pytest.mark.parametrize("given", [["--topic", "scores"], ["--lake", "s3://games/demo/"], []])
def test_what_the_running_stack_has_or_nobody_gave_is_no_difference(tmp_path: Path, given: list[str]) -> None:
    here = begin(tmp_path, "--topic", "scores", "--lake", "s3://games/demo")
    assert "its producer does not run" in refusal(*here, *given)
