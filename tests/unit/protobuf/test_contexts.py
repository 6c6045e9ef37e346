"""Schema contexts: an id is asked for in the configured subject's context, and so is what its schema refers to."""

from urllib.parse import quote

import pytest
from pydantic import ValidationError

from spark_app.protobuf.schemas.registry import ROOT, Registry
from spark_app.settings.connections import RegistrySettings
from tests.support.answers import Answers
from tests.support.protos import CAPS, PROTO3

CONTEXT = ":.sales:"
OF_DEFAULT, OF_SALES = PROTO3 + "message OfDefault {}", PROTO3 + "message OfSales {}"


def registry(answers: Answers, subject: str) -> Registry:
    return Registry(RegistrySettings(url=answers.url, timeout_s=60, subject=subject), CAPS)


@pytest.mark.parametrize(
    ("subject", "text"),
    [(f"{CONTEXT}orders-value", OF_SALES), ("orders-value", OF_DEFAULT), (":.:orders-value", OF_DEFAULT)],
)
def test_an_id_is_that_of_the_subjects_context(answers: Answers, subject: str, text: str) -> None:
    answers.schema(7, OF_DEFAULT)
    answers[f"/schemas/ids/7?subject={quote(CONTEXT)}"] = (200, {"schemaType": "PROTOBUF", "schema": OF_SALES})
    assert registry(answers, subject).fetch(7).texts == {ROOT: text}


def test_nothing_is_sent_for_a_subject_of_the_default_context(answers: Answers) -> None:
    """Some registries know an id of another subject than the one named not at all."""
    answers.schema(7, OF_DEFAULT)
    registry(answers, "orders-value").fetch(7)
    assert answers.queries == [""]


@pytest.mark.parametrize(("named", "asked"), [("common", f"{CONTEXT}common"), (":.other:common", ":.other:common")])
def test_references_are_of_the_context_of_the_schema_that_names_them(answers: Answers, named: str, asked: str) -> None:
    lower = {"name": "lower.proto", "subject": "lower", "version": 1}
    inner = asked.removesuffix("common")
    answers.version("common", 1, PROTO3 + "message Wrong {}")
    answers.version("lower", 1, PROTO3 + "message Wrong {}")
    answers.version(asked, 1, PROTO3 + 'import "lower.proto"; message Right {}', references=[lower])
    answers.version(f"{inner}lower", 1, PROTO3 + "message Lower {}")
    reference = {"name": "common.proto", "subject": named, "version": 1}
    answers.schema(7, PROTO3 + 'import "common.proto"; message M {}', references=[reference])
    texts = registry(answers, f"{CONTEXT}orders-value").fetch(7).texts
    assert ("Right" in texts["common.proto"], "Lower" in texts["lower.proto"]) == (True, True)


def test_subjects_are_listed_without_their_context(answers: Answers) -> None:
    found = [{"subject": f"{CONTEXT}orders-value", "version": 3}, {"subject": f"{CONTEXT}other", "version": 1}]
    answers[f"/schemas/ids/7/versions?deleted=true&subject={quote(CONTEXT)}"] = (200, found)
    assert registry(answers, f"{CONTEXT}orders-value").subjects_of(7) == {"orders-value": 3, "other": 1}


def test_a_guid_has_the_subjects_of_all_its_ids(answers: Answers) -> None:
    guid = "89791762-2336-4186-9674-299b90a802e2"
    answers[f"/schemas/guids/{guid}/ids"] = (200, [{"context": ".", "id": 7}, {"context": ".sales", "id": 9}])
    answers["/schemas/ids/7/versions"] = (200, [{"subject": "a-value", "version": 1}])
    answers[f"/schemas/ids/9/versions?deleted=true&subject={quote(CONTEXT)}"] = (
        200,
        [{"subject": f"{CONTEXT}orders-value", "version": 2}],
    )
    assert registry(answers, "").subjects_of(guid) == {"a-value": 1, "orders-value": 2}


@pytest.mark.parametrize("body", [{"a": 1}, [1, "x", None], [{"subject": 5}, {"version": 1}], '"x"', 7])
def test_subjects_that_are_none_are_left_out(answers: Answers, body: object) -> None:
    answers["/schemas/ids/7/versions"] = (200, body)
    assert registry(answers, "").subjects_of(7) == {}


def test_keys_and_values_of_two_contexts_are_refused() -> None:
    with pytest.raises(ValidationError, match="two contexts"):
        RegistrySettings(subject=":.a:t-value", key_subject=":.b:t-key")
    RegistrySettings(subject=":.a:t-value", key_subject=":.a:t-key")


def test_earlier_versions_are_those_of_the_context_without_deleted_ones(answers: Answers) -> None:
    answers[f"/subjects/{quote(f'{CONTEXT}orders-value')}/versions"] = (200, [1, 2, 3, 4])
    for version, key in ((1, 7), (3, 9)):
        answers.version(f"{CONTEXT}orders-value", version, PROTO3, id=key)
    found = registry(answers, f"{CONTEXT}orders-value").versions_before("orders-value", 4)
    assert list(found) == [(3, 9), (1, 7)]
