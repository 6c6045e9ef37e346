"""For maintainers (scripts/lock): Maven resolves pom.xml, and the result is written to jars.lock.

Input: pom.xml beside this file. Output: jars.lock. Needs `mvn` and the network.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.local.artifacts import LOCK, SETS, Artifact, digest, render
from scripts.local.downloads import base_address, shipped_jars
from scripts.local.errors import LocalError

POM = Path(__file__).with_name("pom.xml")
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def main() -> int:
    try:
        LOCK.write_text("\n".join(render(resolve())) + "\n")
    except LocalError as fault:
        print(f"lock: {fault}", file=sys.stderr)
        return fault.code
    return 0


def resolve() -> Iterator[Artifact]:
    """Every artifact of every set, except those that Spark ships."""
    for name in SETS:
        with tempfile.TemporaryDirectory() as folder:
            _copy_dependencies(name, Path(folder))
            yield from _artifacts(name, Path(folder))


def _copy_dependencies(profile: str, folder: Path) -> None:
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), "--activate-profiles", profile, GOAL]
    settings = {
        "mirror": base_address(),
        "includeScope": "runtime",
        "outputDirectory": folder,
        "mdep.useRepositoryLayout": "true",
        "style.color": "never",
    }
    done = subprocess.run([*command, *(f"-D{key}={value}" for key, value in settings.items())], check=False)
    if done.returncode:
        raise LocalError(f"mvn could not resolve the profile {profile!r} of {POM.name}; see its message above")


def _artifacts(name: str, folder: Path) -> Iterator[Artifact]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in {".jar", ".gz"} and not (name == "spark" and _is_shipped(path)):
            yield Artifact(name, path.relative_to(folder).as_posix(), path.stat().st_size, digest(path))


def _is_shipped(path: Path) -> bool:
    """True if Spark's own jars have the artifact in any version; its name is the folder above the version."""
    artifact = path.parent.parent.name
    return any(jar.name.startswith(f"{artifact}-") and jar.name[len(artifact) + 1].isdigit() for jar in shipped_jars())


if __name__ == "__main__":
    sys.exit(main())
