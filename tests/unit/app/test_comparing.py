"""`protolake schemas` lists what a lake knows, and `schemas check` says what it would do with a schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_app.app.cli import entry
from spark_app.lake.lake import Lake
from spark_app.model.causes import Cause
from spark_app.model.errors import ConfigurationError, UsageError
from spark_app.protobuf.changes import check as schema_check
from spark_app.protobuf.changes.check import Verdict
from spark_app.protobuf.changes.declarations import file_lines
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_text import side_by_side
from spark_app.settings.models import Schemas, Settings
from tests.support.answers import Answers
from tests.support.protos import PROTO3, compile_text
from tests.unit.protobuf.test_comparison import SUBJECT, V1, V2, Subject, desk, step

SETTINGS = Settings(registry={"subject": SUBJECT})  # type: ignore[arg-type]
RENAMED = "field score was renamed to points: new rows fill the column points, and score stays NULL for them"


@pytest.fixture
def lake(answers: Answers, tmp_path: Path) -> Path:
    """A lake that knows two versions of a subject, a refused schema and a waiting one."""
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path / "lake")
    schemas.resolve_new([11, 12])
    step(schemas)
    schemas.ledger.add_refused(20, Cause.SCHEMA_INVALID, "protoc: no\x1b[31m", 0.0)
    schemas.ledger.add_refused(21, Cause.SCHEMA_UNKNOWN, "not in the registry", 0.0)
    schemas.ledger.add_waiting(22, "fetching takes long", 0.0)
    schemas.ledger.save()
    return tmp_path / "lake"


def run(lake: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", str(lake))
    monkeypatch.setenv("PROTOLAKE_REGISTRY__SUBJECT", SUBJECT)
    return int(entry.app([*arguments], prog_name="protolake", standalone_mode=False) or 0)


def test_the_list_has_versions_states_and_findings(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()}
    assert run(lake, "schemas", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in said] == [
        "schema version state message types",
        f"11 v1 of {SUBJECT} decodable Event",
        f"12 v2 of {SUBJECT} decodable Event",
        f"warning {RENAMED}",
        "20 - refused",
        r"schema_invalid: protoc: no\x1b[31m",
        "22 - waiting",
        "waits: fetching takes long",
        "1 more ids, which the registry does not know",
    ]
    assert {path: path.read_bytes() for path in lake.rglob("*") if path.is_file()} == before


def test_the_difference_stands_side_by_side(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(lake, "schemas", "--diff", monkeypatch=monkeypatch)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "string score = 1; | string points = 1;" in lines
    assert "v1 v2" in lines


def test_the_list_as_json(lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(lake, "schemas", "--diff", "--json", monkeypatch=monkeypatch)
    first, second, *_ = json.loads(capsys.readouterr().out)
    assert (first["schema"], first["subjects"], first["messages"]) == (11, {SUBJECT: 1}, ["Event"])
    assert first["compared"]["findings"] == first["differences"] == []
    assert [change["said"] for change in second["compared"]["findings"]] == [RENAMED]
    assert second["differences"]


def test_no_lake_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no lake"):
        run(tmp_path / "none", "schemas", monkeypatch=monkeypatch)
    with pytest.raises(ConfigurationError, match="no lake"):
        run(tmp_path / "none", "schemas", "check", "x.proto", monkeypatch=monkeypatch)


def proto(folder: Path, fields: str, head: str = PROTO3) -> Path:
    file = folder / "orders.proto"
    file.write_text(f"{head}message Event {{ {fields} }}")
    return file


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        (V2, 0, ["no differences"]),
        (
            V2 + " int64 more = 2;",
            0,
            ["info field more is new: new rows fill the column more, and older rows are NULL there"],
        ),
        (
            "string total = 1;",
            1,
            [
                "warning field points was renamed to total: "
                "new rows fill the column total, and points stays NULL for them"
            ],
        ),
    ],
    ids=["same", "harmless", "warning"],
)
def test_a_check_has_an_exit_code_for_a_ci(
    lake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fields: str,
    code: int,
    said: list[str],
) -> None:
    file = proto(tmp_path, fields)
    assert run(lake, "schemas", "check", str(file), monkeypatch=monkeypatch) == code
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [f"{file} compared with v2 of {SUBJECT}, schema 12", *said]
    assert run(lake, "schemas", "check", str(file), "--json", monkeypatch=monkeypatch) == code
    value = json.loads(capsys.readouterr().out)
    assert (value["warns"], value["before_schema"], len(value["findings"])) == (
        bool(code),
        12,
        said != ["no differences"],
    )


def check(lake: Path, file: Path, subject: str = "", imports: Path | None = None) -> Verdict:
    return schema_check.check(Ledger(Lake(lake)), SETTINGS, file, subject, imports)


def test_a_check_goes_by_the_settings(lake: Path, tmp_path: Path) -> None:
    accepting = Settings(registry={"subject": SUBJECT}, schemas={"changes": {"rename": "accept"}})  # type: ignore[arg-type]
    file = proto(tmp_path, "string total = 1;")
    assert not schema_check.check(Ledger(Lake(lake)), accepting, file).warns
    assert schema_check.check(Ledger(Lake(lake)), SETTINGS, file).warns


@pytest.mark.parametrize(
    ("policy", "severity", "said"),
    [
        ("alias", "info", "new rows go on in the column points, which keeps its name"),
        ("new_column", "warning", "new rows fill the column total, and points stays NULL for them"),
        ("quarantine", "warning", "every record of the schema goes to quarantine as schema_change"),
        ("pause", "warning", "every record of the schema waits until a person decides with accept-schema"),
    ],
)
def test_a_check_reports_what_the_policy_does(
    lake: Path, tmp_path: Path, policy: str, severity: str, said: str
) -> None:
    file = tmp_path / "new.proto"
    file.write_text(f"{PROTO3}message Event {{ string total = 1; }}")
    settings = SETTINGS.model_copy(update={"schemas": Schemas(changes={"rename": policy})})  # type: ignore[dict-item]
    [change] = schema_check.check(Ledger(Lake(lake)), settings, file).findings
    assert (change.severity, change.said) == (severity, f"field points was renamed to total: {said}")


def test_a_file_that_does_not_compile_warns(lake: Path, tmp_path: Path) -> None:
    verdict = check(lake, proto(tmp_path, "nonsense"))
    assert verdict.warns
    assert "protoc" in verdict.refused
    first, *why = schema_check.verdict_lines(verdict, Path("orders.proto"))
    assert first == "orders.proto is refused, and its records go to quarantine as schema_invalid:"
    assert why[0].startswith("    protoc: ")


def test_a_subject_that_the_lake_does_not_know_has_nothing_to_compare(lake: Path, tmp_path: Path) -> None:
    verdict = check(lake, proto(tmp_path, V1), "payments-value")
    assert (verdict.before_version, verdict.findings, verdict.warns) == (None, (), False)
    assert "nothing to compare" in schema_check.verdict_lines(verdict, Path("x.proto"))[0]


def test_a_file_that_is_not_there_is_a_wrong_usage(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        check(lake, tmp_path / "none.proto")
    (tmp_path / "bytes.proto").write_bytes(b"\xff")
    assert "not Unicode" in check(lake, tmp_path / "bytes.proto").refused


def test_imports_come_from_a_folder(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "types" / "shop").mkdir(parents=True)
    (tmp_path / "types" / "shop" / "home.proto").write_text(
        f'{PROTO3}import "shop/city.proto"; message Home {{ City c = 1; }}'
    )
    (tmp_path / "types" / "shop" / "city.proto").write_text(f"{PROTO3}message City {{ string zip = 1; }}")
    head = f'{PROTO3}import "shop/home.proto"; import "google/protobuf/timestamp.proto";\n'
    file = proto(tmp_path, f"{V2} Home home = 2; google.protobuf.Timestamp at = 3;", head)
    assert "shop/home.proto" in check(lake, file).refused
    assert [change.path for change in check(lake, file, imports=tmp_path / "types").findings] == ["home", "at"]


def test_imports_come_from_the_version_before(tmp_path: Path) -> None:
    ledger = Ledger(Lake(tmp_path / "lake"))
    text = f'{PROTO3}import "home.proto"; message Event {{ Home home = 1; }}'
    known = compile_text(text, {"home.proto": f"{PROTO3}message Home {{ string city = 1; }}"})
    ledger.add_decodable(1, known.descriptor_set, 0.0, subjects={SUBJECT: 1})
    ledger.save()
    file = proto(tmp_path, "Home home = 1; Home other = 2;", f'{PROTO3}import "home.proto";\n')
    assert [change.path for change in check(tmp_path / "lake", file).findings] == ["other"]


def test_an_import_outside_the_folder_is_refused(lake: Path, tmp_path: Path) -> None:
    file = proto(tmp_path, V2, f'{PROTO3}import "../secret.proto";\n')
    assert "not a plain relative path" in check(lake, file).refused


def test_entries_of_an_earlier_release_have_the_version_of_a_configured_subject(lake: Path, tmp_path: Path) -> None:
    ledger = lake / "_protolake" / "schemas" / "ledger.json"
    entries = json.loads(ledger.read_text())
    for one in entries:
        del one["subjects"], one["comparison"]
    ledger.write_text(json.dumps(entries))
    assert check(lake, proto(tmp_path, V1)).before_version == 2


def test_a_schema_is_printed_as_a_proto_file_declares_it() -> None:
    text = f"""{PROTO3}package shop; import "home.proto";
enum Level {{ LOW = 0; }}
message Event {{
  reserved 4, 6 to 8; reserved "old";
  enum Color {{ RED = 0; }}
  message Inner {{ int64 x = 1; }}
  optional string a = 1; repeated Inner b = 2; map<string, Color> c = 3;
  oneof choice {{ Home d = 10; string e = 11; }}
}}"""
    compiled = compile_text(text, {"home.proto": f"{PROTO3}message Home {{ string city = 1; }}"})
    assert file_lines(compiled.descriptor_set) == [
        "// home.proto",
        "message Home {",
        "  string city = 1;",
        "}",
        "package shop;",
        "enum Level {",
        "  LOW = 0;",
        "}",
        "message Event {",
        "  reserved 4;",
        "  reserved 6 to 8;",
        '  reserved "old";',
        "  enum Color {",
        "    RED = 0;",
        "  }",
        "  message Inner {",
        "    int64 x = 1;",
        "  }",
        "  optional string a = 1;",
        "  repeated shop.Event.Inner b = 2;",
        "  map<string, shop.Event.Color> c = 3;",
        "  Home d = 10;  // of oneof choice",
        "  string e = 11;  // of oneof choice",
        "}",
    ]


def test_lines_that_only_one_version_has_stand_alone() -> None:
    lines = [" ".join(line.split()) for line in side_by_side(["a", "b", "c"], ["a", "x", "y", "c"])]
    assert lines[1:] == ["a a", "b | x", "> y", "c c"]
    assert side_by_side(["a"], ["a"]) == []
