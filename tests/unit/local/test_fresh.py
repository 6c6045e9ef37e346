"""--fresh moves, asks, and never deletes; one stack per state folder."""

import io
from pathlib import Path

import pytest

from scripts.local.claim import Claim
from scripts.local.errors import CONFIGURATION, USAGE, LocalError
from scripts.local.fresh import move_aside


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, Path]:
    """A lake and a state folder with something in them."""
    lake, state = tmp_path / "lake", tmp_path / "local"
    for path in (lake / "bronze_events" / "a.parquet", state / "kafka" / "log", state / "run" / "lock"):
        path.parent.mkdir(parents=True)
        path.write_text(path.name)
    return lake, state


def test_moves_lake_and_state_aside_but_not_the_lock(old: tuple[Path, Path]) -> None:
    lake, state = old
    move_aside(lake, state, is_sure=True)
    (aside,) = lake.parent.glob("lake.*")
    assert (aside / "lake" / "bronze_events" / "a.parquet").read_text() == "a.parquet"
    assert (aside / "local" / "kafka" / "log").read_text() == "log"
    assert not lake.exists()
    assert [path.name for path in state.iterdir()] == ["run"]


def test_without_a_terminal_to_ask_on_nothing_is_moved(old: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    lake, state = old
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(LocalError, match="--yes") as caught:
        move_aside(lake, state, is_sure=False)
    assert caught.value.code == USAGE
    assert lake.exists()


def test_nothing_old_needs_no_question(tmp_path: Path) -> None:
    move_aside(tmp_path / "lake", tmp_path / "local", is_sure=False)
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=r"cannot write .*/file/state/run/lock \(Not a directory\).*--state") as caught:
        Claim(tmp_path / "file" / "state")
    assert caught.value.code == CONFIGURATION


def test_one_claim_per_state_folder(tmp_path: Path) -> None:
    first, second = Claim(tmp_path), Claim(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() is not None
    first.release()
    assert second.acquire()
