"""Each version of a subject is compared with the one before it, once, whenever it comes, whatever the registry says."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from spark_app.app.text import status_lines
from spark_app.lake.lake import Lake
from spark_app.model.schema_changes import Comparison
from spark_app.protobuf.changes.outcomes import Judgement
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import Registry, Subjects
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas, Settings
from spark_app.units.driver.status import Status, StatusSources
from tests.support.answers import Answers
from tests.support.protos import PROTO3
from tests.support.subjects import SUBJECT, Subject

V1, V2, V3 = (f"string {name} = 1;" for name in ("score", "points", "total"))


def desk(answers: Answers, folder: Path, *subjects: str, **changes: str) -> SchemaResolver:
    settings = Schemas(resolve_timeout_s=60)
    registry = Registry(RegistrySettings(url=answers.url, timeout_s=60), limits_of(settings))
    return SchemaResolver(
        Ledger(Lake(folder)), registry, settings, Subjects(subjects or (SUBJECT,)), Judgement(changes)
    )  # type: ignore[arg-type]


def compared(schemas: SchemaResolver, key: int | str) -> Comparison | None:
    return schemas.ledger.comparison_of(schemas.ledger.entries[key])


def step(schemas: SchemaResolver, wait_s: float = 60.0) -> None:
    """Seconds to wait for the registry and protoc: what a busy machine may need, unless a test is about them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_app.protobuf.changes.comparison.WAIT_S", wait_s)
        schemas.comparer.step(threading.Lock())


def warnings(said: str) -> list[str]:
    return [line for line in said.splitlines() if "a schema version changes its tables" in line]


def test_each_version_is_compared_with_the_one_before_and_a_warning_is_one_line(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Subject(answers, V1, V2, V2 + "int32 more = 2;")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12, 13])
    step(schemas)
    [line] = warnings(capsys.readouterr().err)
    rename = "field score was renamed to points: new rows fill the column points, and score stays NULL for them"
    for value in ("level=WARNING", "schema=12", f"subject={SUBJECT}", "version=2", "before=1", f'said="{rename}"'):
        assert value in line
    first, second, third = (compared(schemas, key) for key in (11, 12, 13))
    assert first == Comparison(SUBJECT, 1)
    assert second is not None
    assert [(f.kind, f.path, f.old, f.new, f.severity) for f in second.findings] == [
        ("rename", "points", "string score = 1", "string points = 1", "warning")
    ]
    assert third is not None
    assert [(f.kind, f.severity) for f in third.findings] == [("added", "info")]
    assert third.before == schemas.ledger.entries[12].digest


def test_a_comparison_is_durable_and_made_once(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    step(schemas)
    found = compared(schemas, 12)
    capsys.readouterr()
    later = desk(answers, tmp_path)
    assert compared(later, 12) == found
    step(later)
    assert warnings(capsys.readouterr().err) == []


def test_a_schema_that_a_stop_left_uncompared_is_compared_at_the_next_start(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    desk(answers, tmp_path).resolve_new([11, 12])
    later = desk(answers, tmp_path)
    step(later)
    found = compared(later, 12)
    assert found is not None
    assert [change.kind for change in found.findings] == ["rename"]


def test_a_version_that_arrives_late_is_compared_with_its_own_predecessor(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, V3)
    schemas = desk(answers, tmp_path)
    for key in (11, 13, 12):
        schemas.resolve_new([key])
        step(schemas)
    second, third = compared(schemas, 12), compared(schemas, 13)
    assert second is not None
    assert (second.before_version, [(f.old, f.new) for f in second.findings]) == (
        1,
        [("string score = 1", "string points = 1")],
    )
    assert third is not None
    assert (third.before_version, [(f.old, f.new) for f in third.findings]) == (
        2,
        [("string points = 1", "string total = 1")],
    )


def test_a_version_before_that_no_record_has_becomes_no_entry_of_the_ledger(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([12])
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert [change.kind for change in found.findings] == ["rename"]
    assert list(schemas.ledger.entries) == [12]
    assert schemas.ledger.descriptor_set(found.before)


def test_a_deleted_or_refused_version_is_passed_over(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, "nonsense", V3, V2)
    answers[f"/subjects/{SUBJECT}/versions"] = (200, [1, 2, 4])
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 14])
    step(schemas)
    found = compared(schemas, 14)
    assert found is not None
    assert (found.version, found.before_version) == (4, 1)


def test_a_registry_that_does_not_answer_delays_nothing(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.protobuf.changes.comparison.RETRY_S", 0.0)
    Subject(answers, V1, V2)
    path, free = f"/subjects/{SUBJECT}/versions", threading.Event()
    list_of_versions = answers[path]

    def never(request: BaseHTTPRequestHandler) -> None:
        free.wait(120)
        request.close_connection = True

    answers[path] = never
    schemas = desk(answers, tmp_path)
    assert schemas.resolve_new([12]) == [12]
    began = time.monotonic()
    step(schemas, 1.0)
    assert time.monotonic() - began < 60  # the registry takes 120 s
    assert compared(schemas, 12) is None
    assert [entry.key for entry in schemas.ledger.uncompared()] == [12]
    answers[path] = list_of_versions
    free.set()
    for _ in range(50):
        step(schemas)
        if compared(schemas, 12) is not None:
            break
        time.sleep(0.1)
    found = compared(schemas, 12)
    assert found is not None
    assert [change.kind for change in found.findings] == ["rename"]


def test_a_subject_that_was_unknown_when_the_schema_was_resolved_is_requested(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    answer, answers["/schemas/ids/12/versions"] = answers["/schemas/ids/12/versions"], (500, "x")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    answers["/schemas/ids/12/versions"] = answer
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert found.before_version == 1


def test_a_schema_without_subject_is_requested_once(answers: Answers, tmp_path: Path) -> None:
    answers.schema(11, f"{PROTO3}message Event {{ {V1} }}")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11])
    step(schemas)
    assert compared(schemas, 11) == Comparison()
    asked = list(answers.asked)
    step(schemas)
    assert answers.asked == asked


def test_a_schema_of_several_subjects_is_compared_in_that_of_the_settings(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    answers["/schemas/ids/12/versions"] = (200, [{"subject": s, "version": v} for s, v in (("a", 1), (SUBJECT, 2))])
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert (found.subject, found.before_version) == (SUBJECT, 1)
    assert schemas.ledger.entries[12].subjects == {SUBJECT: 2, "a": 1}


def test_a_change_of_keys_is_no_warning(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, name="orders-key")
    schemas = desk(answers, tmp_path, SUBJECT, "orders-key")
    schemas.resolve_new([11, 12])
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert [(f.kind, f.severity, "_key" in f.said) for f in found.findings] == [("rename", "info", True)]


def test_a_field_that_is_back_is_no_new_one(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, "string a = 1; string b = 2;", "string a = 1;", "string a = 1; string b = 3; string c = 4;")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12, 13])
    step(schemas)
    found = compared(schemas, 13)
    assert found is not None
    assert [(f.kind, f.path, f.severity) for f in found.findings] == [
        ("readded", "b", "warning"),
        ("added", "c", "info"),
    ]


def test_a_kind_that_the_settings_accept_is_no_warning(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path, rename="accept")
    schemas.resolve_new([11, 12])
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert [(change.kind, change.severity) for change in found.findings] == [("rename", "info")]
    assert warnings(capsys.readouterr().err) == []


def test_a_step_that_has_no_time_left_goes_on_in_the_next(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_app.protobuf.changes.comparison.ENTER_S", 0.0)
    Subject(answers, V1, V2, V3)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12, 13])
    for left in (2, 1, 0, 0):
        step(schemas)
        assert len(schemas.ledger.uncompared()) == left


def test_hostile_schemas_fill_neither_log_nor_ledger(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Subject(answers, *("".join(f"int32 {letter * 100}{n} = {n};" for n in range(1, 500)) for letter in "ab"))
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    step(schemas)
    found = compared(schemas, 12)
    assert found is not None
    assert (len(found.findings), found.left_out) == (40, 459)
    said = capsys.readouterr().err
    assert len(warnings(said)) == 40
    assert "left_out=459" in said
    assert (tmp_path / Lake.ledger).stat().st_size < 2_000
    assert max(path.stat().st_size for path in (tmp_path / Lake.schemas).glob("*.comparison")) < 60_000


def test_a_schema_that_cannot_be_compared_stops_nobody(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: bytes) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("spark_app.protobuf.changes.comparison.differences", fail)
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    step(schemas)
    assert 'reason="RuntimeError: a bug"' in capsys.readouterr().err
    assert compared(schemas, 12) == Comparison(SUBJECT, 2)


def test_a_ledger_of_an_earlier_release_has_no_comparisons_and_gets_none(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Subject(answers, V1, V2)
    desk(answers, tmp_path).resolve_new([11, 12])
    ledger = tmp_path / Lake.ledger
    entries = json.loads(ledger.read_text())
    for entry in entries:
        del entry["subjects"], entry["comparison"]
    ledger.write_text(json.dumps(entries))
    asked = list(answers.asked)
    later = desk(answers, tmp_path)
    step(later)
    assert (later.ledger.uncompared(), answers.asked, capsys.readouterr().err.count("WARNING")) == ([], asked, 0)
    assert later.ledger.warnings() == {"count": 0, "newest": [], "stopped": {}}


def test_a_new_version_after_an_upgrade_is_compared_with_an_entry_of_the_earlier_release(
    answers: Answers, tmp_path: Path
) -> None:
    subject = Subject(answers, V1)
    desk(answers, tmp_path).resolve_new([11])
    ledger = tmp_path / Lake.ledger
    [entry] = json.loads(ledger.read_text())
    del entry["subjects"], entry["comparison"]
    ledger.write_text(json.dumps([entry]))
    subject.register(V2)
    later = desk(answers, tmp_path)
    later.resolve_new([12])
    step(later)
    found = compared(later, 12)
    assert found is not None
    assert [change.kind for change in found.findings] == ["rename"]


def test_an_altered_comparison_is_none(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12])
    step(schemas)
    for file in (tmp_path / Lake.schemas).glob("*.comparison"):
        file.write_text("{}")
    assert compared(desk(answers, tmp_path), 12) is None


def test_the_status_counts_warnings_and_shows_the_newest(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, V3)
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([11, 12, 13])
    step(schemas)
    sources = StatusSources(parts=lambda: {"schema_warnings": schemas.ledger.warnings()})
    status = Status(Lake(tmp_path), Settings().layout, sources)
    assert "schemas " not in "\n".join(status_lines(status.value))
    status.end("stopped", None)
    lines = status_lines(Status(Lake(tmp_path), Settings().layout).value)
    at = lines.index("schemas     2 warnings about new versions, see `protolake schemas`")
    assert lines[at + 1].strip().startswith(f"v3 of {SUBJECT}: field points was renamed to total: ")
    assert lines[at + 2].strip().startswith(f"v2 of {SUBJECT}: field score was renamed to points: ")
