"""Text of a registry, and of a schema's author, reaches logs, tables and terminals: no character of it steers one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.local.server import last_line
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, ContractError
from spark_app.model.table_names import TableNames
from spark_app.model.text import one_line
from spark_app.protobuf.schemas.descriptors import compile_sources
from spark_app.protobuf.schemas.limits import SchemaInvalid
from spark_app.protobuf.schemas.registry import ROOT, Registry, RegistryUnreachable, SchemaNotFound, Sources
from spark_app.settings.connections import RegistrySettings
from spark_app.units.driver.status import Status
from tests.support.answers import Answers
from tests.support.examples import examples
from tests.support.protos import CAPS, PROTO3

EVIL = "\x1b]0;gone\x07\x1b[2J\rOK\nall is well\u202e\u2066\u200f\x9b1m\u2028"


@given(st.text())
@examples()
def test_a_line_is_printable_and_says_the_same(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert one_line(line) == line
    if text.isprintable():
        assert line == text


@pytest.mark.parametrize("status", [404, 401, 500])
def test_messages_of_a_registry_are_one_line(answers: Answers, status: int) -> None:
    answers["/schemas/ids/1"] = (status, {"error_code": 1, "message": EVIL})
    with pytest.raises((SchemaNotFound, RegistryUnreachable), match="all is well") as caught:
        Registry(RegistrySettings(url=answers.url), CAPS).fetch(1)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        f'{PROTO3} import "{EVIL!r}"; message M {{}}',
        f"{PROTO3} message {EVIL} {{}}",
        f'{PROTO3} message M {{ string x = 1 [json_name = "{EVIL}"]; string y = 2 [json_name = "{EVIL}"]; }}',
        f"{PROTO3} message M {{ {EVIL} x = 1; }}",
    ],
)
def test_refusals_are_one_line(text: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        compile_sources(Sources(texts={ROOT: text}), CAPS)
    assert str(caught.value).isprintable()


def test_kinds_of_schemas_are_one_line(answers: Answers) -> None:
    answers["/schemas/ids/1"] = (200, {"schema": "x", "schemaType": EVIL})
    with pytest.raises(SchemaInvalid, match="not PROTOBUF") as caught:
        Registry(RegistrySettings(url=answers.url), CAPS).fetch(1)
    assert str(caught.value).isprintable()


def test_last_words_of_the_app_are_one_line() -> None:
    assert str(ConfigurationError(EVIL)).isprintable()
    assert ContractError(EVIL, "restore it").what.isprintable()


@pytest.mark.parametrize("healthy", [[], ["--json"], ["--healthy"]])
def test_status_shows_no_control_characters(tmp_path: Path, healthy: list[str]) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    status = Status(lake, TableNames())
    status.waiting(EVIL)
    assert "all is well" in status.value["reason"]
    status.end("held", EVIL)
    assert "all is well" in json.loads(lake.path(lake.status).read_text())["reason"]
    said = subprocess.run(
        [sys.executable, "-m", "spark_app", "status", *healthy],
        env={"PROTOLAKE_LAKE__PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert said.returncode == 1
    assert all(line.isprintable() for line in (said.stdout + said.stderr).decode().split("\n"))


def test_the_runner_shows_no_control_characters_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "registry.log").write_bytes(b"it says \x1b]0;gone\x07 and \x9b and \xe2\x80\xae\n")
    assert last_line(tmp_path / "registry.log").isprintable()
