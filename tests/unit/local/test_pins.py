"""Images and packages are what was meant: digests that an engine really has, and hashes for each package of an image.

The engine's part is played by a program that answers `docker image inspect` as Docker does; with a real engine
tests/e2e/test_compose.py asks the same.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from scripts.local import pins
from scripts.local.artifacts import ROOT

A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
ENV = "# Images.\nKAFKA_IMAGE=apache/kafka:4.3.0\nPYTHON_IMAGE=python:3.12-slim\n\nKAFKA_PORT=9092\n"


@pytest.fixture
def env(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text(ENV)
    return tmp_path / ".env"


def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: dict[str, list[str]]) -> None:
    """Put a docker on the PATH that has these images, and the digests they were pulled by."""
    answers = tmp_path / "answers"
    answers.mkdir()
    for image, digests in images.items():
        (answers / image.replace("/", "_")).write_text(json.dumps(digests))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2 $3 $4" = "image inspect --format {{json .RepoDigests}}" ] || exit 64\n'
        f'cat {shlex.quote(str(answers))}/"$(echo "$5" | tr / _)" 2>/dev/null && exit\n'
        'echo "Error response from daemon: No such image: $5" >&2; exit 1\n'
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:/usr/bin:/bin")


def test_images_get_the_digests_that_they_were_pulled_by(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"mirror.example/apache/kafka@{B}"
    engine(
        tmp_path,
        monkeypatch,
        {"apache/kafka:4.3.0": [other, f"apache/kafka@{A}"], "python:3.12-slim": [f"docker.io/library/python@{B}"]},
    )
    assert pins.main(["--check", "--file", str(env)]) == 1
    for _ in range(2):  # pinned ones are looked up again
        assert pins.main(["--file", str(env)]) == 0
        wanted = ENV.replace("kafka:4.3.0", f"kafka:4.3.0@{A}").replace("3.12-slim", f"3.12-slim@{B}")
        assert env.read_text() == wanted
    assert pins.main(["--check", "--file", str(env)]) == 0


@pytest.mark.parametrize(
    ("digests", "said"),
    [
        ([], "python:3.12-slim has no digest: it was built or loaded here"),
        ([f"other/python@{B}"], "python:3.12-slim has no digest"),
        ([f"python@{A}", f"python@{B}"], "more than one digest"),
        (None, "No such image: python:3.12-slim: docker pull python:3.12-slim first"),
    ],
)
def test_a_digest_is_never_made_up(
    env: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    digests: list[str] | None,
    said: str,
) -> None:
    known = {"apache/kafka:4.3.0": [f"apache/kafka@{A}"]}
    engine(tmp_path, monkeypatch, known if digests is None else known | {"python:3.12-slim": digests})
    assert pins.main(["--file", str(env)]) != 0
    assert said in capsys.readouterr().err
    assert env.read_text() == ENV


def test_each_package_of_an_image_is_installed_by_its_hash() -> None:
    for name in ("spark_app", "producer"):
        lines = (ROOT / name / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
        installs = [part for line in lines for part in line.split("&&") if re.search(r"\bpip\s+(install|sync)\b", part)]
        assert installs
        assert [part for part in installs if "--require-hashes" not in part] == []
        assert all(
            part.startswith("${PYTHON_IMAGE}") for part in re.findall(r"^FROM (?!packages)(.*)", "\n".join(lines), re.M)
        )
