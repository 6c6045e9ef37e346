"""supervisord.conf, read back by supervisord's own parser."""

from pathlib import Path

import pytest
from supervisor.options import ServerOptions

from scripts.local.program import Program
from scripts.local.supervision import LONGEST_SOCKET_PATH, Process, Supervised, render, socket_path

PROGRAMS = [
    Supervised(Program("kafka", ["java"]), 10, True, "always"),
    Supervised(Program("spark", ["python"], {"SECRET": "s3cret"}, grace=6.0), 20, True, "by exit code"),
    Supervised(Program("producer", ["python"]), 30, False, "by exit code"),
]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder whose name is hard on configuration files; supervisord runs in it."""
    state = tmp_path / "100% mine; all"
    for folder in ("run", "logs"):
        (state / folder).mkdir(parents=True)
    monkeypatch.chdir(state)
    return state


@pytest.fixture
def options(state: Path) -> ServerOptions:
    (state / "run" / "supervisord.conf").write_text(render(PROGRAMS, state, state / "run" / "supervisor.sock"))
    options = ServerOptions()
    options.realize(["-c", "run/supervisord.conf"])
    return options


def test_the_app_is_relaunched_by_exit_code(options: ServerOptions) -> None:
    programs = {group.name: group.process_configs[0] for group in options.process_group_configs}
    assert programs["spark"].exitcodes == [0, 64, 65, 78]
    assert programs["spark"].autorestart.__name__ == "RestartWhenExitUnexpected"
    assert programs["kafka"].autorestart.__name__ == "RestartUnconditionally"
    assert {program.startsecs for program in programs.values()} == {0}


def test_starts_servers_first_and_the_producer_only_when_told(options: ServerOptions) -> None:
    assert [group.name for group in sorted(options.process_group_configs)] == ["kafka", "spark", "producer"]
    assert [group.process_configs[0].autostart for group in sorted(options.process_group_configs)] == [
        True,
        True,
        False,
    ]


def test_every_program_has_its_file_and_its_log(options: ServerOptions) -> None:
    for group in options.process_group_configs:
        program = group.process_configs[0]
        assert program.command.endswith(f"-m scripts.local.attend run/{group.name}.json")
        assert program.stdout_logfile == f"logs/{group.name}.log"


def test_every_stop_is_longer_than_the_attendants(options: ServerOptions) -> None:
    waits = {group.name: group.process_configs[0].stopwaitsecs for group in options.process_group_configs}
    assert all(waits[one.program.name] > one.program.grace for one in PROGRAMS)


def test_no_environment_is_repeated_in_it(state: Path) -> None:
    assert "s3cret" not in render(PROGRAMS, state, state / "run" / "supervisor.sock")


def test_a_long_state_path_gets_a_short_socket(tmp_path: Path) -> None:
    assert socket_path(Path("/s")) == Path("/s/run/supervisor.sock")
    long = tmp_path / ("x" * 120)
    assert len(str(socket_path(long))) <= LONGEST_SOCKET_PATH
    assert socket_path(long) != socket_path(long.with_name("y" * 120))


@pytest.mark.parametrize(
    ("state", "code", "is_down"),
    [("RUNNING", None, False), ("EXITED", 0, True), ("EXITED", 78, True), ("EXITED", 75, False), ("FATAL", None, True)],
)
def test_down_means_that_nobody_will_start_it_again(state: str, code: int | None, is_down: bool) -> None:
    assert Process("spark", state, 0, code).is_down is is_down
