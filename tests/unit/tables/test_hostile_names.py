"""Names that a registry chooses: none becomes a path outside the compiler's folder, an option, an address or code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_app.protobuf.schemas.descriptors import compile_sources
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import ROOT, Sources
from tests.support import names
from tests.support.protos import CAPS, PROTO3

REPOSITORY = Path(__file__).parents[3]


def test_no_name_reaches_outside(tmp_path: Path) -> None:
    """In a process of its own, whose every file, command and connection is watched."""
    outside, cwd, temp = tmp_path / "outside", tmp_path / "cwd", tmp_path / "temp"
    for folder in (outside, cwd, temp):
        folder.mkdir()
    for link in ("link", "a", "f.proto"):
        (cwd / link).symlink_to(outside)
    environment = {"TMPDIR": str(temp), "PYTHONPATH": str(REPOSITORY), "PATH": os.environ["PATH"]}
    environment |= {"HOME": str(outside), "PYTHONDONTWRITEBYTECODE": "1"}
    before = sorted(path.name for path in tmp_path.rglob("*"))
    command = [sys.executable, "-m", "tests.support.names", str(outside / "canary")]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen["outcomes"].keys() <= {"refused", "harmless"}
    assert sum(seen["outcomes"].values()) == 500
    assert seen["outcomes"]["refused"] >= 400
    written = {Path(path).parts[: len(temp.parts)] for path in seen["written"]}
    assert written == {temp.parts}
    assert set(seen["commands"]) == {sys.executable}
    assert set(seen["connections"]) == {seen["server"]}
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", names.hostile("canary")[::16])
def test_hostile_import_in_text_is_refused(name: str) -> None:
    escaped = "".join(f"\\{byte:03o}" for byte in name.encode(errors="surrogatepass"))
    with pytest.raises(SchemaInvalid):
        compile_sources(Sources(texts={ROOT: PROTO3 + f'import "{escaped}"; message M {{}}'}), CAPS)


def test_names_that_differ_by_case_or_by_depth_are_other_files() -> None:
    texts = {"a.proto": "A", "A.proto": "B", "a.proto/b.proto": "C", "0.proto": "D", "in.fds": "E", "said": "F"}
    imports = "".join(f'import "{name}";' for name in texts)
    sources = Sources(texts={name: PROTO3 + f"message {message} {{}}" for name, message in texts.items()})
    sources.texts[ROOT] = PROTO3 + imports + "message M { A a=1; B b=2; C c=3; D d=4; E e=5; F f=6; }"
    assert compile_sources(sources, CAPS)


def test_refusal_names_files_as_people_know_them() -> None:
    sources = Sources(texts={ROOT: PROTO3 + 'import "a/b.proto"; message M {}', "a/b.proto": "message {"})
    with pytest.raises(SchemaInvalid) as caught:
        compile_sources(sources, CAPS)
    assert "a/b.proto:1:9" in str(caught.value)
    assert "schema:2:1" in str(caught.value)
    assert "protolake-protoc" not in str(caught.value)
    assert "site-packages" not in str(caught.value)
