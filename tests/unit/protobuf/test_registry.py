"""Responses of registries and gateways: only a registry's clear word resolves an id, all else waits."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from unittest.mock import Mock

import httpcore2 as httpcore
import pytest

from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, NoRegistry, Registry, RegistryUnreachable, SchemaNotFound
from spark_app.settings.connections import RegistrySettings
from tests.support.answers import Answers, serve
from tests.support.protos import CAPS, PROTO3
from tests.support.registries import NOT_FOUND, WEB_PAGE, broker, serve_all


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


def registry(answers: Answers, caps: SchemaLimits = CAPS) -> Registry:
    return Registry(RegistrySettings(url=answers.url, timeout_s=30), caps)


def test_text_is_fetched(answers: Answers) -> None:
    answers.schema(1, PROTO3)
    assert registry(answers).fetch(1).texts == {ROOT: PROTO3}


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, "x"), (200, "<html>"), (200, "[]"), (200, "null"), (200, ""), (401, {"error_code": 401}), (302, "")],
)
def test_answer_that_says_nothing_waits(answers: Answers, status: int, body: Any) -> None:
    answers["/schemas/ids/2"] = (status, body)
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(2)


@pytest.mark.parametrize(
    "body", [{}, {"error": "bad gateway"}, {"schemaType": "PROTOBUF"}, {"schemaType": "PROTOBUF", "schema": 3}]
)
def test_answer_without_a_schema_waits(answers: Answers, body: Any) -> None:
    answers["/schemas/ids/3"] = (200, body)
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(3)


def rule(kind: str, **more: Any) -> dict[str, Any]:
    return {"name": f"of {kind}", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": kind, "tags": ["PII"]} | more


@pytest.mark.parametrize(
    ("rules", "encrypted"),
    [
        ({"encodingRules": [rule("ENCRYPT_PAYLOAD")]}, "ENCRYPT_PAYLOAD (rule of ENCRYPT_PAYLOAD)"),
        ({"domainRules": [rule("CEL"), rule("ENCRYPT")]}, "ENCRYPT (rule of ENCRYPT)"),
        ({"domainRules": [rule("ENCRYPT", disabled=True)]}, ""),
        ({"domainRules": [rule("CEL_FIELD")], "migrationRules": []}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_rules_that_encrypt_are_noticed(answers: Answers, rules: Any, encrypted: str) -> None:
    answers.schema(6, PROTO3, ruleSet=rules)
    assert registry(answers).fetch(6).encrypted == encrypted


def test_unknown_id_is_not_found(answers: Answers) -> None:
    with pytest.raises(SchemaNotFound):
        registry(answers).fetch(404)


def test_another_kind_of_schema_is_refused(answers: Answers) -> None:
    answers["/schemas/ids/5"] = (200, {"schema": '"string"'})
    with pytest.raises(SchemaInvalid, match="AVRO"):
        registry(answers).fetch(5)


def test_cap_on_text_counts_references(answers: Answers) -> None:
    references = [{"name": f"{i}.proto", "subject": f"r{i}", "version": 1} for i in range(3)]
    answers.schema(6, PROTO3, references=references)
    for i in range(3):
        body = {"subject": f"r{i}", "id": 60 + i, "version": 1, "schemaType": "PROTOBUF", "schema": PROTO3 + " " * 600}
        answers[f"/subjects/r{i}/versions/1"] = (200, body)
    with pytest.raises(SchemaInvalid, match="cap"):
        registry(answers, SchemaLimits(1000, 100, 2000, 15, 512 << 20)).fetch(6)


def test_a_version_that_is_too_large_is_left_out(answers: Answers) -> None:
    answers["/subjects/large/versions"] = (200, [1, 2, 3])
    for version in (1, 2, 3):
        filler = " " * (6 * CAPS.max_text_bytes if version == 2 else 1)
        answers.version("large", version, PROTO3 + filler, id=70 + version)
    assert registry(answers).subject_versions("large") == {71: 1, 73: 3}


def test_a_list_of_versions_that_is_too_large_says_nothing(answers: Answers) -> None:
    answers["/subjects/long/versions"] = (200, "[1" + " " * 6 * CAPS.max_text_bytes + "]")
    with pytest.raises(RegistryUnreachable):
        registry(answers).subject_versions("long")


@pytest.mark.parametrize(
    ("body", "known"), [([1, 2], {1: 1}), ([], {}), (None, {})], ids=["a version that is gone", "none", "null"]
)
def test_versions_that_cannot_be_read_are_left_out(answers: Answers, body: Any, known: dict[int, int]) -> None:
    answers["/subjects/s/versions"] = (200, body)
    version = {"subject": "s", "id": 1, "version": 1, "schemaType": "PROTOBUF", "schema": PROTO3}
    answers["/subjects/s/versions/1"] = (200, version)
    assert registry(answers).subject_versions("s") == known


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, NOT_FOUND, "(HTTP 404: a web page, '404 Not Found'): set it to URL/apis/ccompat/v7 for Apicurio"),
        (404, "", "(HTTP 404: ): set it to"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, "(HTTP 404: HTTP 404 Not Found): set it to"),
        (200, {"status": "up"}, "({'status': 'up'}): set it to"),
    ],
)
def test_what_is_no_registry_is_named_with_the_address_to_set(status: int, body: Any, said: str) -> None:
    with serve_all(status, body) as answers, pytest.raises(NoRegistry) as refused:
        registry(answers).subject_versions("orders-value")
    assert said.replace("URL", answers.url) in str(refused.value)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, WEB_PAGE, "HTTP 200: a web page, 'Welcome to nginx!'"),
        (502, WEB_PAGE, "HTTP 502: a web page, 'Welcome to nginx!'"),
        (302, "", "HTTP 302"),
        (403, NOT_FOUND, "registry.username"),
    ],
)
def test_what_may_be_a_registry_later_is_waited_for_with_its_answer(status: int, body: Any, said: str) -> None:
    with serve_all(status, body) as answers, pytest.raises(RegistryUnreachable) as waits:
        registry(answers).subject_versions("orders-value")
    assert said in str(waits.value)


def test_the_port_of_a_broker_says_nothing() -> None:
    with broker() as port, pytest.raises(RegistryUnreachable, match="disconnected"):
        Registry(RegistrySettings(url=f"http://127.0.0.1:{port}"), CAPS).subject_versions("orders-value")


@pytest.mark.parametrize(
    "subjects",
    [(200, ["other"]), (200, []), (403, {"error_code": 403}), (200, '["' + "x" * 6 * CAPS.max_text_bytes + '"]')],
)
def test_a_registry_without_the_subject_is_one(answers: Answers, subjects: tuple[int, Any]) -> None:
    with_slash = RegistrySettings(url=f"{answers.url}/", timeout_s=30)
    before, answers["/subjects"] = answers["/subjects"], subjects
    assert Registry(with_slash, CAPS).subject_versions("none-yet") == {}
    answers["/subjects"] = before


def test_another_address_is_queried_when_one_does_not_answer(answers: Answers) -> None:
    answers.schema(70, PROTO3)
    both = RegistrySettings(url=f"http://127.0.0.1:9, {answers.url}/", timeout_s=30)
    assert Registry(both, CAPS).fetch(70).texts == {ROOT: PROTO3}


def test_a_server_that_is_busy_is_queried_once_more(answers: Answers) -> None:
    busy = iter([(503, "x"), (200, {"schemaType": "PROTOBUF", "schema": PROTO3})])

    def answer(handler: BaseHTTPRequestHandler) -> None:
        status, body = next(busy)
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    answers["/schemas/ids/71"] = answer
    assert registry(answers).fetch(71).texts == {ROOT: PROTO3}


@pytest.mark.parametrize(("url", "reads"), [("http://a:1,http://b:1", 0), ("http://a:1, https://b:1", 1)])
def test_certificates_of_the_machine_are_read_only_if_a_server_needs_them(
    url: str, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take most of the time in which a client is made."""
    read = Mock(wraps=httpcore.default_ssl_context)
    monkeypatch.setattr(httpcore, "default_ssl_context", read)
    Registry(RegistrySettings(url=url), CAPS)
    assert read.call_count == reads
