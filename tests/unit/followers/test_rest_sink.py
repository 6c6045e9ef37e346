"""Calls of an HTTP service: what is sent, how it shows who it is, and where it does not go."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from spark_app.followers.sinks.json_rows import json_lines
from spark_app.followers.sinks.rest import RestSink, check_address
from spark_app.followers.sinks.sink import OPERATION, Call, Outcome
from spark_app.model.errors import ConfigurationError
from spark_app.settings.sinks import Rest, SinkSettings
from tests.support.secure import Authority
from tests.support.targets import OK, Target

ROWS = pa.table({"player": ["a/b", "ü"], "score": [1, 2]})


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target().up()
    yield made
    made.down()


def send(target: Target, rows: pa.Table = ROWS, url: str = "/", **settings: Any) -> Outcome:
    return send_all(target, [rows], url, **settings)[0]


def send_all(target: Target, several: list[pa.Table], url: str = "/", **settings: Any) -> list[Outcome]:
    rest = Rest(**{"url": f"{target.url}{url}", "allow_private": True, **settings})

    async def run() -> list[Outcome]:
        sink = RestSink("crm", rest, 4)
        sink.open({})
        found: list[Outcome] = []
        for number, rows in enumerate(several):
            found += await sink.send([Call(f"k{number}", "silver_uno_events", "un/o", rows, ("player",))])
        await sink.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(("body", "kind"), [("array", "application/json"), ("ndjson", "application/x-ndjson")])
def test_rows_are_a_body(target: Target, body: str, kind: str) -> None:
    assert send(target, body=body, headers={"X-Tenant": "games"}).result == "accepted"
    assert target.rows() == [{"player": "a/b", "score": 1}, {"player": "ü", "score": 2}]
    assert (target.headers[0]["Content-Type"], target.headers[0]["X-Tenant"]) == (kind, "games")
    assert target.headers[0]["Idempotency-Key"] == "k0"


def test_values_in_an_address_are_encoded(target: Target) -> None:
    send(target, ROWS.slice(0, 1), "/{name}/{player}/{score}", body="object", method="PUT")
    assert target.got[0][1:3] == ("PUT", "/un%2Fo/a%2Fb/1")
    gone = pa.table({"player": ["a/b"], "score": pa.array([None], pa.int64()), OPERATION: ["delete"]})
    send(target, gone, "/{player}", body="object", delete=f"{target.url}/old/{{player}}")
    assert target.got[1][1:3] == ("DELETE", "/old/a%2Fb")


@pytest.mark.parametrize("value", ["..", ".", "", None])
def test_a_value_that_would_lead_elsewhere_is_refused(target: Target, value: str | None) -> None:
    outcome = send(target, pa.table({"player": pa.array([value], pa.string())}), "/players/{player}", body="object")
    assert (outcome.result, target.got) == ("refused", [])


def test_an_address_needs_columns_that_are_there(target: Target) -> None:
    with pytest.raises(ConfigurationError, match=r"sinks.crm.rest: plyer cannot be in the address; there are player"):
        send(target, ROWS.slice(0, 1), "/{plyer}", body="object")
    gone = pa.table({"player": ["a"], "score": pa.array([None], pa.int64()), OPERATION: ["delete"]})
    with pytest.raises(ConfigurationError, match=r"sinks.crm.rest: score cannot be in the address"):
        send(target, gone, "/", body="object", delete=f"{target.url}/{{score}}")


def test_each_type_has_a_form_in_json() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
    rows = pa.table(
        {
            "at": pa.array([at, None], pa.timestamp("us", "UTC")),
            "large": pa.array([2**64 - 1, None], pa.uint64()),
            "bet": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
            "nan": [math.nan, math.inf],
            "blob": [b"\x00\xff", None],
            "day": [datetime.date(2026, 1, 2), None],
            "tags": [["a", None], None],
            "home": pa.array([{"at": at, "n": 2**53 + 1}, None]),
            "counts": pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64())),
            "text": ['"\n\\ü', None],
        }
    )
    first, second = map(json.loads, json_lines(rows))
    assert first == {
        "at": "2026-01-02T03:04:05.678901Z",
        "large": 2**64 - 1,
        "bet": "1.50",
        "nan": None,
        "blob": "AP8=",
        "day": "2026-01-02",
        "tags": ["a", None],
        "home": {"at": "2026-01-02T03:04:05.678901Z", "n": 2**53 + 1},
        "counts": {"x": 1},
        "text": '"\n\\ü',
    }
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((status, "accepted") for status in (200, 204, 409)),
        *((status, "refused") for status in (400, 410, 422)),
        *((status, "retry") for status in (408, 500, 599)),
        *((status, "unavailable") for status in (301, 401, 404, 429, 503)),
    ],
)
def test_an_answer_says_what_follows(target: Target, status: int, result: str) -> None:
    target.answer = lambda *_: status
    target.more = {"Retry-After": "7", "Location": "http://elsewhere.example/"}
    outcome = send(target, drop_on=[409])
    assert (outcome.result, outcome.status) == (result, status)
    assert len(target.got) == 1  # no redirect is followed
    if result == "unavailable" and status != 301:
        assert outcome.wait_s == 7


def test_what_is_too_large_is_not_sent(target: Target) -> None:
    assert send(target, max_bytes=20).result == "too_large"
    assert target.got == []


def test_a_long_answer_is_cut(target: Target) -> None:
    target.answer = lambda *_: 400
    target.said = "x" * 1_000_000
    assert len(send(target).answer) <= 2000


def test_no_address_of_the_own_network_is_called(target: Target) -> None:
    with pytest.raises(ConfigurationError, match=r"sinks.crm.rest.url: .* is 127.0.0.1, of the machine's own network"):
        send(target, allow_private=False)
    named = Rest(url=f"http://localhost:{target.port}/")

    async def run() -> Outcome:
        sink = RestSink("crm", named, 1)
        sink.open({})
        [found] = await sink.send([Call("k", "t", "n", ROWS)])
        await sink.close()
        return found

    found = asyncio.run(run())
    assert found.result == "unavailable"
    assert "of the machine's own network" in found.answer
    for address in ("http://10.1.2.3/", "http://169.254.169.254/latest", "http://[::1]/", "http://[::ffff:127.0.0.1]/"):
        with pytest.raises(ConfigurationError):
            check_address("url", address, False)


def test_secrets_come_from_files_and_reach_no_outcome(target: Target, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    target.answer = lambda *_: 400
    for auth, sent in (
        ({"bearer_file": str(secret)}, "Bearer hush-hush"),
        ({"username": "u", "password_file": str(secret)}, "Basic dTpodXNoLWh1c2g="),
    ):
        target.said = f"who are you, hush-hush? {sent}"
        outcome = send(target, auth=auth)
        assert target.headers[-1]["Authorization"] == sent
        assert "hush" not in outcome.answer
        assert sent.split()[1] not in outcome.answer
    with pytest.raises(ConfigurationError, match=r"sinks.crm.rest.auth.bearer_file: cannot read"):
        send(target, auth={"bearer_file": str(tmp_path / "none")})


def test_a_token_is_fetched_and_fetched_again_when_it_is_refused(target: Target, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    target.said = '{"access_token": "t0ken", "expires_in": 3600}'
    target.answer = lambda key, rows, tried: 401 if key == "k1" and tried == 1 else OK
    auth = {"token_url": f"{target.url}/token", "client_id": "me", "client_secret_file": str(secret), "scope": "w"}
    found = send_all(target, [ROWS, ROWS, ROWS], "/rows", auth=auth)
    assert [one.result for one in found] == ["accepted", "unavailable", "accepted"]
    assert [path for _, _, path, _ in target.got] == ["/token", "/rows", "/rows", "/token", "/rows"]
    assert target.headers[1]["Authorization"] == "Bearer t0ken"
    assert "t0ken" not in found[1].answer


def test_both_sides_show_their_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    target = Target()
    target.certificate, target.client_ca = authority.server_file, authority.ca_file
    client, client_key = authority.certify("client")
    target.up()
    try:
        mine = {"ca_file": str(authority.ca_file), "cert_file": str(client), "key_file": str(client_key)}
        assert send(target, auth=mine).result == "accepted"
        assert send(target, auth={"ca_file": str(authority.ca_file)}).result in ("unavailable", "retry")
        assert send(target).result == "unavailable"
    finally:
        target.down()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rest": {"url": "ftp://x/"}}, "must begin with http"),
        ({"rest": {"url": "https://u:p@x/"}}, "contains a user or password"),
        ({"rest": {"url": "https://{name}.example/"}}, "the host is fixed"),
        ({"rest": {"url": "https://x/{"}}, "is no address"),
        ({"rest": {"url": "https://x/{player}"}}, "need rows_per_call = 1"),
        ({"from": "gold", "rest": {"url": "https://x/", "delete": "https://x/{k}"}}, "need rows_per_call = 1"),
        ({"rest": {"url": "https://x/", "headers": {"Authorization": "x"}}}, "a secret belongs in a file"),
        ({"rest": {"url": "https://x/", "headers": {"X": "a\nb"}}}, "is no header"),
        ({"rest": {"url": "https://x/", "auth": {"username": "u"}}}, "belong together"),
        ({"rest": {"url": "https://x/", "auth": {"bearer_file": "a", "token_url": "https://y/"}}}, "three ways"),
        ({"from": "gold", "on": "append", "rest": {"url": "https://x/"}}, "every other table has change"),
        ({"from": "gold", "begin": "all", "rest": {"url": "https://x/"}}, "is for silver"),
        ({"order": "key", "rest": {"url": "https://x/"}}, "needs key"),
        ({}, "set exactly one of"),
        ({"rest": {"url": "https://x/"}, "kind": "other"}, "set exactly one of"),
        ({"rest": {"url": "https://x/"}, "options": {"a": 1}}, "not built in"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SinkSettings(**settings)
