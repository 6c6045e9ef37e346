"""Whose schema an id is: only one of the topics' own subjects makes the app leave, and only such have versions."""

import threading
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.protobuf.schemas.registry import Registry, Subjects
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas
from tests.support.answers import Answers
from tests.support.protos import PROTO3

GUID = "89791762-2336-4186-9674-299b90a802e2"


def register(answers: Answers, key: int | str, *subjects: str, message: str = "M") -> None:
    """Serve a schema that is in these subjects; its version there is the key's last digit."""
    path = "ids" if isinstance(key, int) else "guids"
    text = f"{PROTO3} package shop; message {message} {{ string x = 1; }}"
    answers[f"/schemas/{path}/{key}"] = (200, {"schemaType": "PROTOBUF", "schema": text})
    number = 90 if isinstance(key, str) else key
    found = [{"subject": subject, "version": number % 10 or 10} for subject in subjects]
    answers[f"/schemas/ids/{number}/versions"] = (200, found)
    if isinstance(key, str):
        answers[f"/schemas/guids/{key}/ids"] = (200, [{"context": ".", "id": number}])


def desk(answers: Answers, folder: Path, subjects: Subjects | None = None) -> SchemaResolver:
    settings = Schemas(max_unknown_ids_per_batch=3, resolve_timeout_s=60)
    registry = Registry(RegistrySettings(url=answers.url, timeout_s=60), limits_of(settings))
    return SchemaResolver(
        Ledger(Lake(folder)), registry, settings, subjects or Subjects(("orders-value",), ("orders", "more"))
    )


@pytest.mark.parametrize(
    "subject",
    ["orders-value", "orders-key", "more-value", "orders-shop.M"],
    ids=["configured", "key", "of the second topic", "topic and message"],
)
def test_a_new_schema_of_the_topics_own_is_a_bump(answers: Answers, tmp_path: Path, subject: str) -> None:
    register(answers, 7, "foreign-value", subject)
    schemas = desk(answers, tmp_path)
    assert schemas.bumps(schemas.resolve_new([7]), []) == [7]


@pytest.mark.parametrize(
    "subject", ["foreign-value", "orders-archive-value", "orders", "shop.M", "orders-shop.Other", "orders-value-2"]
)
def test_a_new_schema_of_a_foreign_subject_is_none(answers: Answers, tmp_path: Path, subject: str) -> None:
    register(answers, 7, subject)
    schemas = desk(answers, tmp_path)
    assert schemas.resolve_new([7]) == [7]
    assert schemas.bumps([7], ["shop.Known"]) == []


@pytest.mark.parametrize("known", ["shop.M", "shop.M#2", "Wrapper/shop.M"])
def test_a_new_version_in_a_subject_named_after_a_message_of_the_tables_is_a_bump(
    answers: Answers, tmp_path: Path, known: str
) -> None:
    register(answers, 7, "shop.M")
    schemas = desk(answers, tmp_path)
    assert schemas.bumps(schemas.resolve_new([7]), [known]) == [7]


def test_what_a_wrapper_contains_is_a_bump_where_the_tables_have_its_message(answers: Answers, tmp_path: Path) -> None:
    register(answers, 7, "game-of-somebody")
    schemas = desk(answers, tmp_path, Subjects(("orders-value",), ("orders",), wrapped=True))
    assert schemas.resolve_new([7]) == [7]
    assert schemas.bumps([7], ["Wrapper/shop.Other"]) == []
    assert schemas.bumps([7], ["Wrapper/shop.M"]) == [7]


def test_a_registry_that_does_not_say_whose_schema_it_is_makes_nobody_leave(answers: Answers, tmp_path: Path) -> None:
    register(answers, 7, "orders-value")
    answers["/schemas/ids/7/versions"] = (500, "x")
    schemas = desk(answers, tmp_path)
    assert schemas.bumps(schemas.resolve_new([7]), []) == []


def test_guids_have_subjects_and_versions(answers: Answers, tmp_path: Path) -> None:
    register(answers, GUID, "orders-value")
    schemas = desk(answers, tmp_path)
    assert schemas.bumps(schemas.resolve_new([GUID]), []) == [GUID]
    assert schemas.ledger.versions() == {GUID: 10}


def test_versions_are_those_of_the_first_configured_subject_that_has_the_schema(
    answers: Answers, tmp_path: Path
) -> None:
    register(answers, 1, "foreign-value", "orders-value")
    register(answers, 2, "orders-key")
    register(answers, 3, "foreign-value")
    schemas = desk(answers, tmp_path, Subjects(("orders-value", "orders-key")))
    schemas.resolve_new([1, 2, 3])
    assert schemas.ledger.versions() == {"1": 1, "2": 2}
    assert Ledger(Lake(tmp_path)).versions() == {"1": 1, "2": 2}


def test_nobody_is_queried_again_for_the_version_of_a_foreign_schema(answers: Answers, tmp_path: Path) -> None:
    register(answers, 3, "foreign-value")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([3])
    asked = list(answers.asked)
    assert schemas.fetch_missing_versions() == {}
    later = desk(answers, tmp_path)  # another start asks once
    assert [later.fetch_missing_versions() for _ in range(3)] == [{}, {}, {}]
    assert answers.asked == [*asked, "/schemas/ids/3/versions"]


def test_a_version_is_requested_until_the_registry_answers(answers: Answers, tmp_path: Path) -> None:
    register(answers, 7, "orders-value")
    answer, answers["/schemas/ids/7/versions"] = answers["/schemas/ids/7/versions"], (500, "x")
    schemas = desk(answers, tmp_path)
    schemas.resolve_new([7])
    assert schemas.fetch_missing_versions() == {}
    answers["/schemas/ids/7/versions"] = answer
    found = schemas.fetch_missing_versions()
    schemas.ledger.set_versions(found)
    assert (found, schemas.ledger.versions()) == ({7: 7}, {"7": 7})


def test_all_configured_subjects_are_learnt(answers: Answers, tmp_path: Path) -> None:
    for number, subject in ((1, "orders-value"), (2, "orders-key")):
        answers[f"/subjects/{subject}/versions"] = (200, [number])
        answers.version(subject, number, PROTO3, id=number)
        register(answers, number, subject)
    schemas = desk(answers, tmp_path, Subjects(("orders-value", "orders-key")))
    schemas.load_subject_versions()
    assert schemas.ledger.versions() == {"1": 1, "2": 2}
    assert schemas.resolve_new([1, 2]) == []


def test_versions_can_be_requested_while_schemas_are_met(answers: Answers, tmp_path: Path) -> None:
    """The main thread asks, the thread of the query meets."""
    schemas = desk(answers, tmp_path)
    for key in range(1, 2000):
        schemas.ledger.add_waiting(key, "", 0)
    done = threading.Event()

    def resolve_new() -> None:
        for key in range(10_000, 30_000):
            schemas.ledger.add_waiting(key, "", 0)
        done.set()

    thread = threading.Thread(target=resolve_new)
    thread.start()
    while not done.is_set():
        schemas.fetch_missing_versions()
        schemas.ledger.versions()
        schemas.ledger.waiting()
    thread.join()
