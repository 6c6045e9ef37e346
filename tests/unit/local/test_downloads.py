"""Fetching from a repository: a real one, on loopback, serves the files."""

import functools
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.local import artifacts, downloads
from scripts.local.errors import UNREACHABLE, LocalError

FILES = {"org/a/1/a-1.jar": b"first", "org/b/2/b-2.jar": b"second"}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository with FILES behind PROTOLAKE_MAVEN_MIRROR, and an empty home."""
    root = tmp_path / "repository"
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(content)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(downloads.MIRROR, f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield root
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"spark {path} {len(data)} {hashlib.sha256(data).hexdigest()}" for path, data in FILES.items()]
    path = tmp_path / "jars.lock"
    path.write_text("\n".join(lines))
    monkeypatch.setattr(downloads, "read", functools.partial(artifacts.read, lock=path))


@pytest.mark.usefixtures("lock", "repository")
def test_progress_counts_the_bytes_that_there_are(tmp_path: Path) -> None:
    counted: dict[str, int] = {}
    for artifact in downloads.read("spark"):
        downloads._fetch(artifact, tmp_path, lambda file, count: counted.update({file: counted.get(file, 0) + count}))
    assert counted == {Path(path).name: len(data) for path, data in FILES.items()}


@pytest.mark.usefixtures("lock", "repository")
def test_fetches_what_the_lock_names_and_drops_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a-0.jar").write_bytes(b"an old version")
    assert downloads.ensure("spark", folder) == folder
    assert {path.name: path.read_bytes() for path in folder.glob("*.jar")} == {
        "a-1.jar": b"first",
        "b-2.jar": b"second",
    }
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.jar")} == {0o644}


@pytest.mark.usefixtures("lock")
def test_what_is_there_is_not_fetched_again(tmp_path: Path, repository: Path) -> None:
    downloads.ensure("spark", tmp_path / "jars")
    (repository / "org/a/1/a-1.jar").unlink()
    downloads.ensure("spark", tmp_path / "jars")


@pytest.mark.usefixtures("lock")
@pytest.mark.parametrize("damage", [b"damage of another size", b"forgd"])
def test_a_damaged_file_is_fetched_again(tmp_path: Path, repository: Path, damage: bytes) -> None:
    """Also one of the right size, with the times that it had."""
    folder = downloads.ensure("spark", tmp_path / "jars")
    before = (folder / "a-1.jar").stat()
    (folder / "a-1.jar").write_bytes(damage)
    os.utime(folder / "a-1.jar", ns=(before.st_atime_ns, before.st_mtime_ns))
    downloads.ensure("spark", folder)
    assert (folder / "a-1.jar").read_bytes() == b"first"


@pytest.mark.usefixtures("lock", "repository")
def test_a_jar_that_somebody_added_is_dropped(tmp_path: Path) -> None:
    folder = downloads.ensure("spark", tmp_path / "jars")
    (folder / "theirs.jar").touch()
    downloads.ensure("spark", folder)
    assert {path.name for path in folder.glob("*.jar")} == {"a-1.jar", "b-2.jar"}


@pytest.mark.usefixtures("lock")
def test_mavens_own_cache_serves(tmp_path: Path, repository: Path) -> None:
    repository.rename(tmp_path / "gone")
    (tmp_path / "home" / ".m2").mkdir(parents=True)
    (tmp_path / "gone").rename(tmp_path / "home" / ".m2" / "repository")
    assert (downloads.ensure("spark", tmp_path / "jars") / "b-2.jar").read_bytes() == b"second"


@pytest.mark.usefixtures("lock")
def test_another_file_than_the_locks_is_refused(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # the waits between tries
    (repository / "org/a/1/a-1.jar").write_bytes(b"forgd")
    with pytest.raises(LocalError, match=r"a-1\.jar.*hash") as caught:
        downloads.ensure("spark", tmp_path / "jars")
    assert caught.value.code == UNREACHABLE
    assert not (tmp_path / "jars" / "a-1.jar").exists()


def test_the_default_address_is_ivys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(downloads.MIRROR, raising=False)
    assert downloads.base_address().startswith("https://")


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=r"cannot write .*file/jars.*: make it writable for this user"):
        downloads.ensure("spark", tmp_path / "file" / "jars")
