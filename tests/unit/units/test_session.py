"""How the session is configured, as far as that needs no JVM."""

from pathlib import Path

import pytest

from spark_app.settings.models import Settings
from spark_app.units.spark import session

SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.parametrize(
    ("mode", "length", "held"),
    [(0o700, 50, "true"), (0o700, 90, "false"), (0o750, 50, "false"), (0o777, 50, "false")],
    ids=["private", "too long for a socket's path", "open to a group", "open to all"],
)
def test_sockets_are_only_where_nobody_else_can_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, length: int, held: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("t" * length)
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("TMPDIR", str(folder))
    assert session._options(Settings())[SOCKETS] == held
    assert list(folder.iterdir()) == []


def test_a_temporary_folder_that_is_missing_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert session._options(Settings())[SOCKETS] == "false"
