"""jars.lock: what is a line, what is refused, and that the committed lock holds what the stack needs."""

import hashlib
from pathlib import Path

import pytest

from scripts.local.artifacts import LOCK, Artifact, parse, read, render
from scripts.local.errors import CONFIGURATION, LocalError

HASH = "0123456789abcdef" * 4
LINE = f"spark io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar 113863 {HASH}"


def test_a_line_is_an_artifact() -> None:
    path = "io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar"
    assert parse(f"# a comment\n\n{LINE}\n") == [Artifact("spark", path, 113863, HASH)]
    assert parse(LINE)[0].file == "delta-storage-4.4.0.jar"


@pytest.mark.parametrize(
    "line",
    {
        "unknown set": LINE.replace("spark", "flink"),
        "climbs out": LINE.replace("io/delta", "../delta"),
        "absolute": LINE.replace("io/delta", "/io/delta"),
        "hidden file": LINE.replace("/delta-storage-4.4.0.jar", "/.bashrc"),
        "no size": LINE.replace("113863", "big"),
        "short hash": LINE[:-1],
        "upper case hash": LINE.replace("abcdef", "ABCDEF"),
        "a field too many": f"{LINE} x",
        "a field too few": LINE.rpartition(" ")[0],
    }.values(),
)
def test_any_other_line_is_refused_by_number(line: str) -> None:
    with pytest.raises(LocalError, match=r"jars.lock:2 is not") as caught:
        parse(f"{LINE}\n{line}")
    assert caught.value.code == CONFIGURATION


def test_what_is_rendered_reads_back() -> None:
    artifacts = parse(LOCK.read_text())
    assert parse("\n".join(render(reversed(artifacts)))) == artifacts


def test_the_committed_lock_is_complete() -> None:
    assert len(read("spark")) == 14
    assert len(read("kafka")) == 46
    assert [one.file for one in read("registry")] == ["apicurio-registry-app-3.3.3-all.tar.gz"]


def test_the_committed_lock_names_no_host() -> None:
    assert "://" not in LOCK.read_text()


def test_a_file_is_the_artifact_only_with_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    file.write_bytes(b"jar")
    artifact = Artifact("spark", "a/b/1/a.jar", 3, hashlib.sha256(b"jar").hexdigest())
    assert artifact.is_at(file)
    file.write_bytes(b"jaR")
    assert not artifact.is_at(file)
    assert not artifact.is_at(tmp_path / "missing.jar")
