"""How Spark's JVM is started without spark-submit: the same process, and only where all is as it was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark_app.settings.models import Settings
from spark_app.units.spark import options
from spark_app.units.spark.launcher import Launcher

pytestmark = pytest.mark.spark
# Prints the command and the variables of the JVM, and whether it is the one that was begun.
START = """
import json, os, sys
from pathlib import Path
from spark_app.settings.config import load
from spark_app.units.spark import launcher, options
settings, folder = load(), Path(os.environ["TMPDIR"])
starts = launcher.of(settings.spark.class_archive)
if sys.argv[1] == "early":
    starts.begin(options.of(settings, folder), options.variables(settings, folder))
begun = starts._begun
held = begun and begun.connection
from spark_app.units.spark import jvm, session
spark = session.start(settings, sys.argv[2], quiet=True)
assert spark.range(3).count() == 3
assert not (held and held.parent.exists())  # it has the JVM's token
read = lambda name: Path(f"/proc/{jvm.jvm_pid()}/{name}").read_text().split("\\0")[:-1]
print(json.dumps([begun is not None and begun.process.pid == jvm.jvm_pid(), read("cmdline"), read("environ")]))
jvm.end(clean=True)
"""
# Not seen by the app: shells set them, or they are another value in each start.
OF_SHELLS = ("_", "SHLVL", "OLDPWD", "SPARK_ENV_LOADED", "SPARK_SCALA_VERSION", "_PYSPARK_DRIVER_CONN_INFO_PATH")
OF_SHELLS += ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")  # for PySpark's own process


def start(how: str, name: str = options.NAME) -> tuple[bool, list[str], dict[str, str]]:
    run = subprocess.run([sys.executable, "-c", START, how, name], capture_output=True, text=True, check=True)
    is_begun, command, variables = json.loads(run.stdout)
    parted = (variable.partition("=") for variable in variables)
    return is_begun, command, {key: value for key, _, value in parted if key not in OF_SHELLS}


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the command is read from /proc")
def test_a_jvm_is_the_same_without_spark_submit(
    spark_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setenv("PROTOLAKE_SPARK__CLASS_ARCHIVE", str(archive))
    first = start("early")  # nothing is known yet
    assert first[0] is False
    kept = archive.with_suffix(".command.json")
    before = kept.read_bytes()
    begun = start("early")
    assert begun[0] is True
    assert set(begun[1]) == set(first[1])  # spark-submit gives the options in another order
    assert begun[2] == first[2]
    direct = start("late")
    assert direct[1:] == begun[1:]
    other = start("early", "another name")  # the begun JVM does not fit
    assert other[0] is False
    assert "spark.app.name=another name" in other[1]
    assert kept.read_bytes() == before

    settings = spark_settings.model_copy(
        update={"spark": spark_settings.spark.model_copy(update={"class_archive": str(archive)})}
    )
    given = [part for pair in options.of(settings, tmp_path).items() for part in ("--conf", "=".join(pair))]
    command = Launcher(str(archive))._command
    assert command([*given, "pyspark-shell"])
    assert command([*given, "--conf", "spark.driver.extraLibraryPath=/x", "pyspark-shell"]) is None
    assert command([*given, "--jars", "x.jar", "pyspark-shell"]) is None
    kept.chmod(0o666)  # anybody may have written it
    assert command([*given, "pyspark-shell"]) is None
    kept.chmod(0o600)
    assert command([*given, "pyspark-shell"])
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=y")
    assert command([*given, "pyspark-shell"]) is None
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    kept.write_text("{")
    assert command([*given, "pyspark-shell"]) is None
