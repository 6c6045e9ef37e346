"""Which columns a schema fills is decided before it is used, from the version before it, whatever the registry says."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.schema_changes import DEFAULTS, Policy
from spark_app.protobuf.changes.outcomes import Judgement
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.ledger_text import schema_lines, schemas_json
from spark_app.protobuf.schemas.registry import Registry, Subjects
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas
from tests.support.answers import Answers
from tests.support.subjects import SUBJECT, Subject

V1, V2, V3 = (f"string {name} = 1;" for name in ("score", "points", "total"))
ALIAS = {**DEFAULTS, "rename": "alias"}
SILENT = dict.fromkeys(DEFAULTS, "warn")


def desk(answers: Answers, folder: Path, changes: dict[str, str]) -> SchemaResolver:
    settings = Schemas(resolve_timeout_s=60)
    registry = Registry(RegistrySettings(url=answers.url, timeout_s=60), limits_of(settings))
    judgement = Judgement(changes)  # type: ignore[arg-type]
    return SchemaResolver(Ledger(Lake(folder)), registry, settings, Subjects((SUBJECT,)), judgement)


def columns(schemas: SchemaResolver) -> list[str]:
    return schemas.ledger.catalog().columns["Event"].names


def outcomes(schemas: SchemaResolver) -> dict[int | str, str]:
    return {entry.key: entry.outcome for entry in schemas.ledger.entries.values()}


def test_versions_before_that_no_record_had_are_resolved_first(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, V3)
    schemas = desk(answers, tmp_path, ALIAS)
    assert schemas.resolve_new([13]) == [13]
    assert list(outcomes(schemas)) == [11, 12, 13]
    assert columns(schemas) == ["score"]


@pytest.mark.parametrize("path", ["/schemas/ids/12/versions", f"/subjects/{SUBJECT}/versions", "/schemas/ids/11"])
def test_a_schema_waits_while_the_registry_does_not_say_what_was_before(
    answers: Answers, tmp_path: Path, path: str
) -> None:
    Subject(answers, V1, V2)
    answer, answers[path] = answers[path], (503, "")
    schemas = desk(answers, tmp_path, ALIAS)
    schemas.resolve_new([12])
    assert outcomes(schemas)[12] == "waiting"
    assert "Event" not in schemas.ledger.catalog().columns
    answers[path] = answer
    for _ in range(2):
        schemas.resolve(12)
    assert outcomes(schemas) == {11: "decodable", 12: "decodable"}
    assert columns(schemas) == ["score"]


@pytest.mark.parametrize("path", ["/schemas/ids/12/versions", f"/subjects/{SUBJECT}/versions"])
def test_no_schema_waits_if_changes_are_only_accepted_or_warned_of(answers: Answers, tmp_path: Path, path: str) -> None:
    Subject(answers, V1, V2)
    answers[path] = (503, "")
    schemas = desk(answers, tmp_path, SILENT)
    assert schemas.resolve_new([12]) == [12]
    assert columns(schemas) == ["points"]


@pytest.mark.parametrize("path", ["/schemas/ids/12/versions", f"/subjects/{SUBJECT}/versions"])
def test_a_registry_that_forbids_to_list_versions_stops_no_schema(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    Subject(answers, V1, V2)
    answers[path] = (403, {"message": "no"})
    schemas = desk(answers, tmp_path, ALIAS)
    assert schemas.resolve_new([12]) == [12]
    assert columns(schemas) == ["points"]
    assert "forbids to list versions" in capsys.readouterr().err


def test_a_schema_waits_for_what_is_forbidden_if_a_person_wants_to_decide(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    answers["/schemas/ids/12/versions"] = (403, {"message": "no"})
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "pause"})
    assert schemas.resolve_new([12]) == []
    assert "403" in schemas.ledger.entries[12].detail


@pytest.mark.parametrize(("policy", "outcome"), [("warn", "decodable"), ("quarantine", "refused")])
def test_a_person_decides_if_the_code_cannot(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy, outcome: str
) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path, ALIAS)
    monkeypatch.setattr("spark_app.protobuf.changes.decisions.decide_columns", lambda *_: {}["missing"])
    assert schemas.resolve_new([12]) == []
    assert schemas.ledger.entries[12].is_paused
    assert "cannot be decided: KeyError" in schemas.ledger.entries[12].detail
    schemas.ledger.accept(12, policy)
    schemas.resolve(12)
    assert outcomes(schemas)[12] == outcome


def test_schemas_of_an_earlier_release_get_their_subject_when_its_versions_are_listed(
    answers: Answers, tmp_path: Path
) -> None:
    """Else a new column could take the name that one of them has used for another type."""
    Subject(answers, "string a = 1; string b = 2;", "string a = 1;")
    desk(answers, tmp_path, SILENT).load_subject_versions()
    file = tmp_path / "_protolake" / "schemas" / "ledger.json"
    file.write_text(json.dumps([{**entry, "subjects": {}} for entry in json.loads(file.read_text())]))
    Subject(answers, "string a = 1; string b = 2;", "string a = 1;", "string a = 1; int64 b = 3;")
    later = desk(answers, tmp_path, DEFAULTS)
    later.load_subject_versions()
    assert [entry.subjects for entry in later.ledger.entries.values()] == [{SUBJECT: n} for n in (1, 2, 3)]
    assert columns(later) == ["a", "b", "b_2"]


def test_a_version_before_that_is_refused_does_not_count(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, "no field", V3)
    schemas = desk(answers, tmp_path, ALIAS)
    schemas.resolve_new([13])
    schemas.resolve(13)
    assert outcomes(schemas) == {11: "decodable", 12: "refused", 13: "decodable"}
    assert columns(schemas) == ["score"]


def test_subjects_that_refer_to_each_other_do_not_hang(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    answers["/schemas/ids/11/versions"] = (200, [{"subject": SUBJECT, "version": 3}])
    answers[f"/subjects/{SUBJECT}/versions"] = (200, [1, 2])
    schemas = desk(answers, tmp_path, ALIAS)
    schemas.resolve_new([12])
    assert outcomes(schemas)[12] == "decodable"


def test_the_comment_of_an_alias_has_both_names(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, "\n// What was won.\n" + V2)
    schemas = desk(answers, tmp_path, ALIAS)
    schemas.resolve_new([12])
    assert schemas.ledger.comments_of(schemas.ledger.entries[12]) == {"Event.score": "What was won. (field points)"}


def test_a_decision_is_read_back(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    desk(answers, tmp_path, ALIAS).resolve_new([12])
    later = desk(answers, tmp_path, SILENT)
    assert columns(later) == ["score"]
    assert later.ledger.message_names(12) == ["Event"]


@pytest.mark.parametrize(
    ("changes", "severity", "said"),
    [
        (ALIAS, "info", "new rows go on in the column score, which keeps its name"),
        (DEFAULTS, "warning", "new rows fill the column points, and score stays NULL for them"),
    ],
)
def test_a_schema_change_says_what_was_decided(
    answers: Answers, tmp_path: Path, changes: dict[str, str], severity: str, said: str
) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path, changes)
    schemas.resolve_new([12])
    schemas.comparer.step(threading.Lock())
    compared = schemas.ledger.comparison_of(schemas.ledger.entries[12])
    assert compared is not None
    [change] = compared.findings
    assert (change.kind, change.severity) == ("rename", severity)
    assert change.said == f"field score was renamed to points: {said}"
    assert compared.before == schemas.ledger.entries[11].digest


@pytest.mark.parametrize(("policy", "outcome"), [("quarantine", "refused"), ("pause", "waiting")])
def test_a_schema_is_kept_out_until_a_person_decides(
    answers: Answers, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, outcome: str
) -> None:
    Subject(answers, V1, V2)
    changes = {**DEFAULTS, "rename": policy}
    schemas = desk(answers, tmp_path, changes)
    assert schemas.resolve_new([12]) == []
    entry = schemas.ledger.entries[12]
    assert (entry.outcome, entry.cause, entry.detail) == (
        outcome,
        "schema_change",
        "field score was renamed to points",
    )
    assert "accept-schema 12" in capsys.readouterr().err
    assert schemas.ledger.warnings()["stopped"] == {"12": entry.detail}
    assert any(line.split()[:2] == ["12", "-"] and outcome in line for line in schema_lines(schemas.ledger, True))
    schemas.comparer.step(threading.Lock())
    assert (schemas.ledger.warnings()["count"], schemas.ledger.uncompared()) == (0, [])
    assert "a schema version changes its tables" not in capsys.readouterr().err
    lines = schema_lines(schemas.ledger, True)
    assert any(line.split()[:4] == ["12", "v2", "of", SUBJECT] and outcome in line for line in lines)
    assert any("score = 1;" in line and "points = 1;" in line for line in lines)
    later = desk(answers, tmp_path, SILENT)  # another setting decides nothing
    later.retry_waiting()
    later.resolve(12)
    assert later.ledger.entries[12].outcome == outcome
    later.ledger.accept(12, "alias")
    later.ledger.save()
    last = desk(answers, tmp_path, changes)
    last.resolve(12)
    last.comparer.step(threading.Lock())
    compared = last.ledger.comparison_of(last.ledger.entries[12])
    assert compared is not None
    assert compared.findings[0].said.endswith("new rows go on in the column score, which keeps its name")
    assert last.ledger.warnings()["stopped"] == {}
    assert last.ledger.entries[12].outcome == "decodable"
    assert columns(last) == ["score"]


def test_a_version_after_one_in_quarantine_shows_the_difference_by_which_it_was_stopped(
    answers: Answers, tmp_path: Path
) -> None:
    Subject(answers, V1, V2, V2 + "int32 more = 2;")
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "quarantine"})
    schemas.resolve_new([11, 12, 13])
    later = desk(answers, tmp_path, ALIAS)  # what the settings say now changes nothing about a stopped schema
    later.comparer.step(threading.Lock())
    entry = later.ledger.entries[13]
    compared = later.ledger.comparison_of(entry)
    assert compared is not None
    assert (compared.version, compared.before_version, entry.stopped_by) == (3, 1, ["rename"])
    assert [(change.kind, change.severity) for change in compared.findings] == [
        ("rename", "warning"),
        ("added", "info"),
    ]
    assert compared.findings[0].said.endswith("every record of the schema goes to quarantine as schema_change")


def test_the_file_of_a_stopped_schema_is_needed_by_nothing_but_its_text(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "pause"})
    schemas.resolve_new([12])
    schemas.comparer.step(threading.Lock())
    entry = schemas.ledger.entries[12]
    (tmp_path / Lake.schemas / f"{entry.digest}.fds").unlink()
    assert any("is missing or was altered" in line for line in schema_lines(schemas.ledger, True))
    [listed] = [one for one in schemas_json(schemas.ledger, False) if one["schema"] == 12]
    assert (listed["subjects"], listed["messages"]) == ({SUBJECT: 2}, [])
    schemas.ledger.accept(12, "alias")
    schemas.resolve(12)
    assert outcomes(schemas)[12] == "decodable"


def test_a_schema_that_other_changes_stop_once_more_is_decided_by_the_same_policy(
    answers: Answers, tmp_path: Path
) -> None:
    Subject(answers, V1, V2)
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "pause"})
    schemas.resolve_new([12])
    entry = schemas.ledger.entries[12]
    schemas.ledger.entries[12] = replace(entry, stopped_by=(), accepted="alias")  # as after an error of the code
    schemas.resolve(12)
    schemas.resolve(12)
    assert outcomes(schemas)[12] == "decodable"
    assert columns(schemas) == ["score"]


def test_a_version_after_one_that_waits_for_a_decision_waits_too(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, V2 + "int32 more = 2;")
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "pause"})
    schemas.resolve_new([13])
    assert outcomes(schemas) == {11: "decodable", 12: "waiting", 13: "waiting"}
    schemas.ledger.accept(12, "alias")
    for _ in range(2):
        schemas.resolve(13)
    assert outcomes(schemas) == {11: "decodable", 12: "decodable", 13: "decodable"}
    assert columns(schemas) == ["score", "more"]


def test_a_change_without_such_a_policy_keeps_nothing_out(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V1 + "int32 more = 2;")
    schemas = desk(answers, tmp_path, {**DEFAULTS, "rename": "pause"})
    assert schemas.resolve_new([12]) == [12]


def test_columns_go_on_although_no_policy_decides_any_more(answers: Answers, tmp_path: Path) -> None:
    Subject(answers, V1, V2, V2 + "int32 more = 2;")
    desk(answers, tmp_path, ALIAS).resolve_new([12])
    later = desk(answers, tmp_path, SILENT)
    later.resolve_new([13])
    assert columns(later) == ["score", "more"]
