"""jars.lock: one line per artifact, `set path bytes sha256`, where path is the path inside a Maven repository.

Input: the lock's text. Output: `Artifact`s. An invalid line is a LocalError that names it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scripts.local.errors import LocalError

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "jars.lock"
SETS = ("spark", "kafka", "registry")

# A path segment starts with a letter or a digit, so that no line can point outside of the target folder.
_PATH = re.compile(r"(?:[A-Za-z0-9][\w.-]*/){3,}[A-Za-z0-9][\w.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Artifact:
    """One file of a Maven repository; `size` in bytes."""

    set: str
    path: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        return PurePosixPath(self.path).name

    def __str__(self) -> str:
        return f"{self.set} {self.path} {self.size} {self.sha256}"

    def is_at(self, path: Path) -> bool:
        """True if `path` holds exactly this artifact."""
        return path.is_file() and path.stat().st_size == self.size and digest(path) == self.sha256


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse(text: str, where: str = "jars.lock") -> list[Artifact]:
    """The artifacts of a lock in its order."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line and not line.startswith("#"))
    return [_parse_line(line, f"{where}:{number}") for number, line in lines]


def _parse_line(line: str, where: str) -> Artifact:
    match line.split(" "):
        case [name, path, size, sha256] if (
            name in SETS and _PATH.fullmatch(path) and size.isdecimal() and _SHA256.fullmatch(sha256)
        ):
            return Artifact(name, path, int(size), sha256)
    raise LocalError(f"{where} is not `set path bytes sha256`: restore the committed file or run scripts/lock")


def read(name: str, lock: Path = LOCK) -> list[Artifact]:
    """The artifacts of one set."""
    artifacts = [artifact for artifact in parse(lock.read_text(), lock.name) if artifact.set == name]
    if not artifacts:
        raise LocalError(f"{lock.name} has no artifact of the set {name!r}; the sets are {', '.join(SETS)}")
    return artifacts


def render(artifacts: Iterable[Artifact]) -> Iterator[str]:
    """The lock's lines, sorted by set and path."""
    yield "# set, path in a Maven repository, bytes, sha256; made by scripts/lock from scripts/local/pom.xml"
    yield from map(str, sorted(artifacts, key=lambda artifact: (SETS.index(artifact.set), artifact.path)))


def fingerprint(artifacts: Iterable[Artifact]) -> str:
    """A name for exactly this set of artifacts."""
    return hashlib.sha256("\n".join(map(str, artifacts)).encode()).hexdigest()
