"""Artifacts of jars.lock as verified files: `python -m scripts.local.downloads SET [--to DIR]`.

Input: a set of jars.lock. Output: a folder with exactly those files, each with the sha256 of the lock.
A file that cannot be downloaded, or has another hash, is a LocalError. Needs pooch and pyspark only, because images
are built with it.
"""

import argparse
import fcntl
import importlib.util
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pooch

from scripts.local.artifacts import ROOT, SETS, Artifact, read
from scripts.local.errors import UNREACHABLE, LocalError

CACHE = ROOT / ".cache"
MIRROR = "PROTOLAKE_MAVEN_MIRROR"
_DEFAULTS = "org/apache/ivy/core/settings/repository.properties"
_ADDRESS = "ivy.ibiblio.default.artifact.root"


def ensure(name: str, folder: Path | None = None) -> Path:
    """The folder that holds the set `name`; missing and wrong files are downloaded."""
    artifacts, folder = read(name), folder or CACHE / "jars" / name
    if not _is_complete(artifacts, folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"cannot write {error.filename} ({error.strerror})"
            raise LocalError(f"{why}: make it writable for this user") from None
        with locked(folder.with_name(f".{folder.name}.lock")):
            if not _is_complete(artifacts, folder):
                _fill(name, artifacts, folder)
    return folder


def base_address() -> str:
    """The Maven repository to download from: PROTOLAKE_MAVEN_MIRROR, or Ivy's default, as Spark itself would use."""
    return os.environ.get(MIRROR) or _ivy_default()


@cache
def shipped_jars() -> list[Path]:
    """The jars inside the installed pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LocalError("pyspark is not installed in this Python: install requirements.lock first")
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; waits while another process holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ivy_default() -> str:
    for jar in (jar for jar in shipped_jars() if jar.name.startswith("ivy-")):
        for line in zipfile.ZipFile(jar).read(_DEFAULTS).decode().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == _ADDRESS:
                return value.strip()
    raise LocalError(f"no default Maven repository in pyspark's jars: set {MIRROR} to the address of one")


def _is_complete(artifacts: list[Artifact], folder: Path) -> bool:
    """True if the folder holds these files and no other jar, because each jar would be on a class path. Hashing all 230
    MB of the three sets takes 0.2 s of CPU, so each start does it."""
    if {path.name for path in folder.glob("*.jar")} - {artifact.file for artifact in artifacts}:
        return False
    with ThreadPoolExecutor(4) as threads:
        return all(threads.map(lambda artifact: artifact.is_at(folder / artifact.file), artifacts))


def _fill(name: str, artifacts: list[Artifact], folder: Path) -> None:
    missing = [artifact for artifact in artifacts if not _find(artifact, folder)]
    with _progress(name, sum(artifact.size for artifact in missing)) as advance:
        threads = ThreadPoolExecutor(4)
        try:
            list(threads.map(lambda artifact: _fetch(artifact, folder, advance), missing))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    for artifact in artifacts:
        (folder / artifact.file).chmod(0o644)  # pooch creates it with 0600, which a container's user could not read
    _drop_others(artifacts, folder)


def _find(artifact: Artifact, folder: Path) -> bool:
    """True if the file exists, or could be copied from Maven's cache on this machine."""
    target, local = folder / artifact.file, Path.home() / ".m2" / "repository" / artifact.path
    if artifact.is_at(target):
        return True
    if not artifact.is_at(local):
        return False
    partial = target.with_name(f"{target.name}.part")
    shutil.copyfile(local, partial)
    partial.replace(target)
    return True


def _fetch(artifact: Artifact, folder: Path, advance: Callable[[str, int], None]) -> None:
    source = pooch.create(
        path=folder,
        base_url="",
        registry={artifact.file: f"sha256:{artifact.sha256}"},
        urls={artifact.file: f"{base_address().rstrip('/')}/{artifact.path}"},
        retry_if_failed=3,
    )
    bar = _Bar(artifact, advance)
    try:
        source.fetch(artifact.file, downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 18, timeout=60))
    except (OSError, ValueError) as error:  # requests raises OSErrors; pooch raises ValueError for a wrong hash
        reason = str(error).splitlines()[0][:200] if isinstance(error, ValueError) else type(error).__name__
        remedy = f"check the network or set {MIRROR} to a Maven repository you can reach, then try again"
        raise LocalError(f"cannot download {artifact.path}: {reason}; {remedy}", UNREACHABLE) from error


class _Bar:
    """The progress bar that pooch expects. pooch reports a chunk's nominal size, and starts again after a failed
    attempt, so the count is limited to the file's size. `update` after `reset` repeats the total."""

    def __init__(self, artifact: Artifact, advance: Callable[[str, int], None]) -> None:
        self.total, self._file, self._advance, self._is_open = artifact.size, artifact.file, advance, True
        self._left = artifact.size

    def update(self, count: int) -> None:
        counted = min(count, self._left)
        if self._is_open and counted:
            self._left -= counted
            self._advance(self._file, counted)

    def reset(self) -> None:
        self._is_open = False

    def close(self) -> None:
        self._advance(self._file, 0)


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[str, int], None]]:
    """Yields advance(file, bytes); zero bytes mean that the file is done. A bar on a terminal, otherwise a line per
    file."""
    pooch.get_logger().setLevel("WARNING")
    if size == 0:
        yield lambda _file, _count: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(f"{name} jars", total=size)
            yield lambda _file, count: progress.advance(task, count)
    else:
        print(f"{name} jars: {size / 1e6:.0f} MB to download", file=sys.stderr, flush=True)
        yield lambda file, count: None if count else print(f"  {file}", file=sys.stderr, flush=True)


def _drop_others(artifacts: list[Artifact], folder: Path) -> None:
    """Remove old versions, which would be on the class path, too."""
    wanted = {artifact.file for artifact in artifacts}
    for path in folder.iterdir():
        if path.is_file() and path.name not in wanted:
            path.unlink()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.local.downloads", description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--to", type=Path, metavar="DIR", help="folder to fill (default: .cache/jars/SET)")
    options = parser.parse_args(arguments)
    try:
        print(ensure(options.set, options.to))
    except LocalError as fault:
        print(f"downloads: {fault}", file=sys.stderr)
        return fault.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
