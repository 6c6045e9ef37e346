"""What is written down of a program, and how long it waits after an exit."""

from pathlib import Path

import pytest

from scripts.local.program import Exit, Program, backoff_seconds, note_exit, read_exits


def exit_of(code: int, seconds: float = 1.0, asked: bool = False) -> Exit:
    return Exit(at=0.0, code=code, seconds=seconds, asked=asked)


def test_a_program_reads_back_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    program = Program("spark", ["python", "-m", "spark_app"], {"PASSWORD": "%s ; $x"}, grace=6.0)
    path = program.write(tmp_path / "run")
    assert Program.read(path) == program
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("exits", "seconds"),
    [
        ([], 0.0),
        ([exit_of(75)], 0.0),
        ([exit_of(0)], 0.0),
        ([exit_of(78)], 0.0),
        ([exit_of(143, asked=True)], 0.0),
        ([exit_of(70)], 1.0),
        ([exit_of(70), exit_of(70), exit_of(70)], 4.0),
        ([exit_of(70)] * 20, 30.0),
        ([exit_of(70), exit_of(75), exit_of(-9)], 1.0),
        ([exit_of(70), exit_of(70, seconds=600)], 0.0),
    ],
    ids=["none", "bump", "done", "held", "asked", "bug", "third bug", "many bugs", "killed after a bump", "settled"],
)
def test_waits_longer_while_it_keeps_failing(exits: list[Exit], seconds: float) -> None:
    assert backoff_seconds(exits) == seconds


def test_the_history_keeps_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "spark.json"
    note_exit(path, 75, started=0.0, asked=False)
    with path.with_suffix(".exits").open("a") as file:
        file.write('{"at": 1, "co')
    assert [one.code for one in read_exits(path)] == [75]
    assert read_exits(path, since=read_exits(path)[0].at + 1) == []
