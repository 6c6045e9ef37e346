"""A registry that means harm: it gets no foreign request, no password into a log, and no more time than is its due."""

import gzip
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from spark_app.protobuf.schemas.descriptors import compile_sources
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import Registry, RegistryUnreachable, SchemaNotFound
from spark_app.settings.connections import RegistrySettings
from tests.support.answers import Answers, serve
from tests.support.protos import CAPS, PROTO3
from tests.support.secure import Authority

GOOD = {"schemaType": "PROTOBUF", "schema": PROTO3 + "message M { int32 x = 1; }"}
SECRET = "ca$nary-password"
ENCODED = "c29tZWJvZHk6Y2EkbmFyeS1wYXNzd29yZA=="  # base64 of somebody:<SECRET>


@pytest.fixture
def login(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "password").write_text(SECRET)
    return {"username": "somebody", "password_file": str(tmp_path / "password")}


def registry(answers: Answers, caps: SchemaLimits = CAPS, **settings: Any) -> Registry:
    return Registry(RegistrySettings(url=answers.url, **{"timeout_s": 30} | settings), caps)


def stream(status: int, *headers: tuple[str, str], chunk: bytes, times: int, pause: float = 0) -> Any:
    """An answer in pieces, until the client hangs up."""

    def say(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for header in headers:
            handler.send_header(*header)
        handler.end_headers()
        for _ in range(times):
            handler.wfile.write(chunk)
            handler.wfile.flush()
            time.sleep(pause)

    return say


def redirect(target: str, status: int) -> Callable[[BaseHTTPRequestHandler], None]:
    return stream(status, ("Location", target), ("Content-Length", "0"), chunk=b"", times=0)


def timed(question: Callable[[], Any]) -> float:
    started = time.monotonic()
    with suppress(SchemaInvalid, RegistryUnreachable):
        question()
        pytest.fail("it answered")
    return time.monotonic() - started


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(answers: Answers, login: dict[str, Any], status: int) -> None:
    with serve() as foreign:
        foreign["/schemas/ids/1"] = (200, GOOD)
        answers["/schemas/ids/1"] = redirect(f"{foreign.url}/schemas/ids/1", status)
        with pytest.raises(RegistryUnreachable, match=str(status)):
            registry(answers, **login).fetch(1)
        assert foreign.asked == []


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "file:///etc/passwd", "//127.0.0.1:1/", "\x00", ":"]
)
def test_strange_redirects_say_nothing(answers: Answers, target: str) -> None:
    answers["/schemas/ids/1"] = redirect(target, 302)
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(1)


@pytest.mark.parametrize("status", [404, 401, 500])
def test_password_that_is_sent_back_is_not_repeated(answers: Answers, login: dict[str, Any], status: int) -> None:
    answers["/schemas/ids/1"] = (status, {"error_code": 1, "message": f"no: {SECRET}, Basic {ENCODED}"})
    with pytest.raises((SchemaNotFound, RegistryUnreachable), match="no: ") as caught:
        registry(answers, **login).fetch(1)
    assert answers.logins[0] == f"Basic {ENCODED}"
    assert SECRET not in str(caught.value)
    assert ENCODED not in str(caught.value)


@pytest.mark.parametrize("message", ["x" * 60_000, ["x"] * 10_000, {"a": "x" * 60_000}])
def test_long_messages_are_cut(answers: Answers, message: Any) -> None:
    answers["/schemas/ids/1"] = (404, {"error_code": 1, "message": message})
    with pytest.raises(SchemaNotFound) as caught:
        registry(answers).fetch(1)
    assert len(str(caught.value)) <= 500


def test_body_at_the_cap_is_read_and_one_byte_more_is_refused(answers: Answers) -> None:
    body = json.dumps(GOOD)
    answers["/schemas/ids/1"] = (200, body + " " * (5 * 1000 - len(body)))
    answers["/schemas/ids/2"] = (200, body + " " * (5 * 1000 + 1 - len(body)))
    small = replace(CAPS, max_text_bytes=1000)
    assert registry(answers, small).fetch(1).size == len(GOOD["schema"])
    with pytest.raises(SchemaInvalid, match="5000 bytes"):
        registry(answers, small).fetch(2)


@pytest.mark.parametrize("length", [(), (("Content-Length", str(10 << 30)),)], ids=["no length", "length"])
def test_endless_body_is_refused(answers: Answers, length: tuple[tuple[str, str], ...]) -> None:
    answers["/schemas/ids/1"] = stream(200, *length, chunk=b" " * (1 << 20), times=10 << 10)
    with pytest.raises(SchemaInvalid, match="bytes"):
        registry(answers).fetch(1)
    assert answers.asked == ["/schemas/ids/1"]


def test_endless_error_says_nothing(answers: Answers) -> None:
    answers["/schemas/ids/1"] = stream(500, chunk=b" " * (1 << 20), times=10 << 10)
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(1)


def test_compressed_body_is_not_unpacked(answers: Answers) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    answers["/schemas/ids/1"] = stream(200, ("Content-Encoding", "gzip"), chunk=bomb, times=1)
    with pytest.raises(RegistryUnreachable, match="gzip"):
        registry(answers).fetch(1)


@pytest.mark.parametrize("where", ["body", "headers", "silence"])
def test_slow_answer_ends_in_time(answers: Answers, where: str) -> None:
    def drip_headers(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
        while True:
            handler.wfile.write(b"x")
            time.sleep(0.05)

    body = stream(200, ("Content-Length", "100000"), chunk=b" ", times=100_000, pause=0.05)
    silence = stream(200, ("Content-Length", "100000"), chunk=b"", times=50, pause=0.05)
    answers["/schemas/ids/1"] = {"body": body, "headers": drip_headers, "silence": silence}[where]
    assert timed(lambda: registry(answers, timeout_s=0.5).fetch(1)) < 2.5  # the limit is 1 s


def test_many_slow_references_end_in_time(answers: Answers) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.1)
        stream(200, ("Content-Length", str(len(json.dumps(GOOD)))), chunk=json.dumps(GOOD).encode(), times=1)(handler)

    references = [{"name": f"{i}.proto", "subject": f"s{i}", "version": 1} for i in range(90)]
    answers["/schemas/ids/1"] = (200, GOOD | {"references": references})
    for i in range(90):
        answers[f"/subjects/s{i}/versions/1"] = slow
    assert timed(lambda: registry(answers, timeout_s=0.5).fetch(1)) < 2.5


@pytest.mark.parametrize("what", ["too large", "compressed", "late"])
def test_failures_leave_the_client_whole(answers: Answers, what: str) -> None:
    """Its pool holds 100 connections: those that failures keep would soon be missed."""
    answers["/schemas/ids/1"] = {
        "too large": stream(200, chunk=b" " * 6000, times=1),
        "compressed": stream(200, ("Content-Encoding", "br"), chunk=b"x", times=1),
        "late": stream(200, ("Content-Length", "100"), chunk=b" ", times=99, pause=0.002),
    }[what]
    client = registry(answers, replace(CAPS, max_text_bytes=1000), timeout_s=0.1)
    for _ in range(5):
        with pytest.raises((SchemaInvalid, RegistryUnreachable)):
            client.fetch(1)
    assert client._client.connections <= 1


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def test_tls_keeps_the_same_bounds(authority: Authority, login: dict[str, Any]) -> None:
    with serve(authority.server_file) as answers:
        answers["/schemas/ids/1"] = (200, GOOD)
        answers["/schemas/ids/2"] = stream(200, chunk=b" " * (1 << 20), times=100)
        answers["/schemas/ids/3"] = stream(200, ("Content-Length", "9"), chunk=b" ", times=9, pause=0.3)
        client = registry(answers, ca_file=str(authority.ca_file), **login)
        assert client.fetch(1).size
        assert answers.logins == [f"Basic {ENCODED}"]
        with pytest.raises(SchemaInvalid):
            client.fetch(2)
        hasty = registry(answers, ca_file=str(authority.ca_file), timeout_s=0.5, **login)
        assert timed(lambda: hasty.fetch(3)) < 2.5


def test_password_waits_for_the_right_certificate(authority: Authority, login: dict[str, Any]) -> None:
    with serve(authority.server_file) as answers:
        with pytest.raises(RegistryUnreachable, match="certificate"):
            registry(answers, **login).fetch(1)
        assert answers.asked == []


def test_proxy_keeps_the_same_bounds(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", answers.url)
    answers["http://registry.invalid/schemas/ids/1"] = (200, GOOD)
    answers["http://registry.invalid/schemas/ids/2"] = stream(200, chunk=b" ", times=100, pause=0.05)
    address = "http://registry.invalid"
    assert Registry(RegistrySettings(url=address), CAPS).fetch(1).size
    hasty = Registry(RegistrySettings(url=address, timeout_s=0.5), CAPS)
    assert timed(lambda: hasty.fetch(2)) < 2.5


@pytest.mark.parametrize(
    "body", ["[" * 10_000, '{"schema":' * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000], ids=["lists", "torn", "whole"]
)
def test_deep_json_says_nothing(answers: Answers, body: str) -> None:
    answers["/schemas/ids/1"] = (200, body)
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(1)


def test_answer_about_another_id_says_nothing(answers: Answers) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"id": 2})
    answers["/schemas/ids/3"] = (200, GOOD | {"id": 3})
    with pytest.raises(RegistryUnreachable, match="about 2"):
        registry(answers).fetch(1)
    assert registry(answers).fetch(3).size


def test_guid_is_requested_and_checked(answers: Answers) -> None:
    guid, other = "89791762-2336-4186-9674-299b90a802e2", "00000000-2336-4186-9674-299b90a802e2"
    answers[f"/schemas/guids/{guid}"] = (200, GOOD | {"id": 7, "guid": guid.upper()})
    answers[f"/schemas/guids/{other}"] = (200, GOOD | {"id": 7, "guid": guid})
    assert registry(answers).fetch(guid).size
    with pytest.raises(RegistryUnreachable, match="about"):
        registry(answers).fetch(other)
    with pytest.raises(SchemaNotFound):
        registry(answers).fetch("../../config")
    assert answers.asked[-1] == "/schemas/guids/..%2F..%2Fconfig"


def test_answers_are_not_kept(answers: Answers) -> None:
    client = registry(answers)
    with pytest.raises(SchemaNotFound):
        client.fetch(1)
    answers.schema(1, PROTO3 + "message Old {}")
    client.fetch(1)
    answers.schema(1, PROTO3 + "message New {}")
    assert "New" in str(client.fetch(1).texts)


@pytest.mark.parametrize(
    "subject", ["../../config", "a/b", "a?deleted=false", "a#b", "%2e%2e", "a b", "é", "\r\nX: y", "\x00", ":.ctx:a"]
)
def test_subject_is_one_segment(answers: Answers, subject: str) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"references": [{"name": "a.proto", "subject": subject, "version": 1}]})
    with pytest.raises(SchemaNotFound):
        registry(answers).fetch(1)
    segments = answers.asked[-1].split("/")
    assert (segments[1], *segments[3:]) == ("subjects", "versions", "1")
    assert ".." not in segments


@pytest.mark.parametrize("subject", ["", ".", "..", None, 5, ["a"], "a" * 5000, "\ud800"])
def test_subject_that_is_none_is_refused(answers: Answers, subject: Any) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"references": [{"name": "a.proto", "subject": subject, "version": 1}]})
    with pytest.raises(SchemaInvalid):
        registry(answers).fetch(1)
    assert len(answers.asked) == 1


@pytest.mark.parametrize("version", [0, -2, 1 << 40, "1", "latest", "../../1", 1.5, True, [1], {}])
def test_version_that_is_none_is_refused(answers: Answers, version: Any) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"references": [{"name": "a.proto", "subject": "a", "version": version}]})
    with pytest.raises(SchemaInvalid, match="version"):
        registry(answers).fetch(1)
    assert len(answers.asked) == 1


@pytest.mark.parametrize("version", [-1, None])
def test_latest_version_may_be_meant(answers: Answers, version: Any) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"references": [{"name": "a.proto", "subject": "a", "version": version}]})
    answers["/subjects/a/versions/latest"] = (200, GOOD)
    assert registry(answers).fetch(1).names() == {"", "a.proto"}


@pytest.mark.parametrize("references", ["x", [1], {"a": 1}, [["a"]], 5])
def test_references_that_are_none_say_nothing(answers: Answers, references: Any) -> None:
    answers["/schemas/ids/1"] = (200, GOOD | {"references": references})
    with pytest.raises(RegistryUnreachable):
        registry(answers).fetch(1)


def test_too_many_references_are_refused_before_one_is_requested(answers: Answers) -> None:
    references = [{"name": f"{i}.proto", "subject": f"s{i}", "version": 1} for i in range(10_000)]
    answers["/schemas/ids/1"] = (200, GOOD | {"references": references})
    with pytest.raises(SchemaInvalid, match="10001 files"):
        registry(answers).fetch(1)
    assert len(answers.asked) == 1


def test_chain_of_references_is_cut(answers: Answers) -> None:
    def link(i: int) -> dict[str, Any]:
        return {"references": [{"name": f"{i}.proto", "subject": f"s{i}", "version": 1}]}

    answers["/schemas/ids/1"] = (200, GOOD | link(0))
    for i in range(1000):
        answers[f"/subjects/s{i}/versions/1"] = (200, GOOD | link(i + 1))
    with pytest.raises(SchemaInvalid, match="101 files"):
        registry(answers).fetch(1)
    assert len(answers.asked) == 100


def test_cycle_of_references_is_refused(answers: Answers) -> None:
    reference = {name: [answers.version(name, 1, "") | {"name": f"{name}.proto"}] for name in "ab"}
    answers.version("a", 1, PROTO3 + 'import "b.proto"; message A {}', references=reference["b"])
    answers.version("b", 1, PROTO3 + 'import "a.proto"; message B {}', references=reference["a"])
    answers.schema(1, PROTO3 + 'import "a.proto"; message M {}', references=reference["a"])
    with pytest.raises(SchemaInvalid, match="recursively imports itself"):
        compile_sources(registry(answers).fetch(1), CAPS)
    assert len(answers.asked) == 3


def test_half_a_surrogate_pair_is_refused(answers: Answers) -> None:
    answers["/schemas/ids/1"] = (200, '{"schemaType": "PROTOBUF", "schema": "\\ud800"}')
    with pytest.raises(SchemaInvalid, match="Unicode"):
        registry(answers).fetch(1)


@pytest.mark.parametrize("versions", [["../x", {}, None, 1.5], {"a": 1}, "x", 7])
def test_list_of_versions_that_is_none_is_empty(answers: Answers, versions: Any) -> None:
    answers["/subjects/s/versions"] = (200, json.dumps(versions))
    assert registry(answers).subject_versions("s") == {}
    assert answers.asked == ["/subjects/s/versions", "/subjects"]
