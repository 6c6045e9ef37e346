"""A registry that refuses us is a setting that is wrong, not an outage; and its address holds no secret."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from spark_app.app.pipeline import Pipeline
from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.schemas.registry import Registry, RegistryAccessDenied, RegistryUnreachable
from spark_app.settings import config
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Settings
from tests.support.answers import Answers, serve
from tests.support.protos import CAPS
from tests.support.secure import Authority

Header = Callable[[RegistrySettings, str], str]
SCHEMA = 'syntax = "proto3"; message M {}'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def ask(url: str, **settings: Any) -> None:
    Registry(RegistrySettings(url=url, timeout_s=30, **settings), CAPS).fetch(1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_names_the_login(answers: Answers, status: int) -> None:
    answers["/schemas/ids/1"] = (status, {"error_code": status, "message": "no"})
    with pytest.raises(RegistryAccessDenied, match=r"registry\.password_file"):
        ask(answers.url)


@pytest.mark.parametrize("status", [302, 407, 429, 500, 502, 503])
def test_other_answers_are_outages(answers: Answers, status: int) -> None:
    answers["/schemas/ids/1"] = (status, {"error_code": status, "message": "no"})
    with pytest.raises(RegistryUnreachable) as caught:
        ask(answers.url)
    assert not isinstance(caught.value, RegistryAccessDenied)


def test_a_registry_that_is_down_is_an_outage() -> None:
    with pytest.raises(RegistryUnreachable) as caught:
        ask("https://127.0.0.1:1")
    assert not isinstance(caught.value, RegistryAccessDenied)


def test_a_registry_without_tls_names_its_address(answers: Answers) -> None:
    with pytest.raises(RegistryAccessDenied, match=r"registry\.url: the server answers without TLS"):
        ask(answers.url.replace("http:", "https:"))


def test_a_connection_that_is_cut_in_the_handshake_is_an_outage() -> None:
    """As a gateway does whose registry starts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(2)], daemon=True).start()
        with pytest.raises(RegistryUnreachable) as caught:
            ask(f"https://127.0.0.1:{server.getsockname()[1]}")
    assert not isinstance(caught.value, RegistryAccessDenied)


@pytest.mark.parametrize(
    ("alert", "remedy"),
    [
        (40, r"registry\.certificate_file"),
        (42, r"registry\.certificate_file"),
        (45, r"registry\.certificate_file"),
        (48, r"registry\.certificate_file"),
        (49, r"registry\.certificate_file"),
        (70, r"registry\.url: the server offers no TLS version"),
        (80, None),
        (112, None),
    ],
    ids=[
        "handshake failure",
        "bad certificate",
        "certificate expired",
        "unknown authority",
        "access denied",
        "protocol version",
        "internal error",
        "unrecognized name",
    ],
)
def test_an_alert_is_a_refusal_where_a_setting_can_mend_it(alert: int, remedy: str | None) -> None:
    """RFC 8446, section 6: a record of type 21 with a fatal alert."""

    def answer(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(bytes([21, 3, 3, 0, 2, 2, alert]))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        with pytest.raises(RegistryUnreachable, match=remedy) as caught:
            ask(f"https://127.0.0.1:{server.getsockname()[1]}")
    assert isinstance(caught.value, RegistryAccessDenied) == (remedy is not None)


def test_an_unknown_authority_names_its_file(authority: Authority) -> None:
    with serve(authority.server_file) as answers, pytest.raises(RegistryAccessDenied, match=r"registry\.ca_file"):
        ask(answers.url)


def test_an_expired_certificate_of_the_registry_is_named(authority: Authority) -> None:
    with serve(authority.expired_file) as answers, pytest.raises(RegistryAccessDenied, match=r"expired.*certificate"):
        ask(answers.url, ca_file=str(authority.ca_file))


@pytest.mark.parametrize("own", ["none", "expired"])
def test_a_missing_or_expired_certificate_of_ours_names_its_file(authority: Authority, own: str) -> None:
    more = {} if own == "none" else dict.fromkeys(("certificate_file", "key_file"), str(authority.expired_file))
    more["ca_file"] = str(authority.ca_file)
    refused = pytest.raises(RegistryAccessDenied, match=r"registry\.certificate_file")
    with serve(authority.server_file, authority.ca_file) as answers, refused:
        ask(answers.url, **more)


@pytest.mark.parametrize(
    "files",
    [
        {"ca_file": "gone"},
        {"ca_file": "no PEM"},
        {"certificate_file": "no PEM", "key_file": "no PEM"},
        {"key_file": "x"},
    ],
)
def test_a_certificate_file_that_cannot_be_used_is_a_setting(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "no PEM").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"registry\.ca_file"):
        ask("https://127.0.0.1:1", **{key: str(tmp_path / name) for key, name in files.items()})


def refuse_login(answers: Answers) -> str:
    answers["/subjects/protobuf_game_stream-value/versions"] = (401, {"error_code": 401, "message": "no"})
    return answers.url


def test_a_start_that_is_refused_and_knows_nothing_ends_at_once(answers: Answers, tmp_path: Path) -> None:
    settings = Settings(registry={"url": refuse_login(answers)}, lake={"path": str(tmp_path)})  # type: ignore[arg-type]
    pipeline = Pipeline(settings)
    pipeline.lake.prepare()
    opened = pipeline._open_lake()
    began = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"401.*registry\.password_file"):
        pipeline._await("registry", lambda: pipeline._load_schemas(opened))
    assert time.monotonic() - began < settings.run.connect_timeout_s / 2


def test_a_start_that_is_refused_goes_on_with_what_it_knows(answers: Answers, tmp_path: Path) -> None:
    settings = Settings(registry={"url": refuse_login(answers)}, lake={"path": str(tmp_path)})  # type: ignore[arg-type]
    pipeline = Pipeline(settings)
    pipeline.lake.prepare()
    opened = pipeline._open_lake()
    opened.resolver.ledger.add_waiting(7, "", 0)
    assert pipeline._await("registry", lambda: pipeline._load_schemas(opened)) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@registry:8081",
        "http://user@registry:8081",
        "https://registry:8081/?token=secret",
        "https://registry:8081?token=secret",
        "https://registry:8081/#secret",
    ],
)
def test_an_address_that_may_contain_a_secret_is_refused_and_not_shown(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOLAKE_REGISTRY__URL", url)
    with pytest.raises(ConfigurationError, match=r"registry\.password_file") as caught:
        config.load()
    assert "secret" not in str(caught.value).replace("may be a secret", "")


@pytest.mark.parametrize("login", [{"username": "me", "password_file": "secret"}, {"token_file": "secret"}])
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://registry:8081", True),
        ("http://10.0.0.7:8081", True),
        ("https://registry:8081", False),
        ("http://127.0.0.1:8081", False),
        ("http://[::1]:8081", False),
        ("http://localhost:8081", False),
    ],
)
def test_a_password_that_would_go_in_clear_is_warned_of(
    login: dict[str, str],
    url: str,
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("s3cret")
    pipeline = Pipeline(Settings(registry=login | {"url": url}, lake={"path": str(tmp_path)}))  # type: ignore[arg-type]
    pipeline.lake.prepare()
    pipeline._open_lake()
    said = capfd.readouterr().err
    assert ("unencrypted" in said) == told
    assert "s3cret" not in said


def by_password(settings: RegistrySettings, secret: str) -> str:
    return f"Basic {base64.b64encode(f'{settings.username}:{secret}'.encode()).decode()}"


def by_token(settings: RegistrySettings, secret: str) -> str:
    return f"Bearer {secret}"


LOGINS = pytest.mark.parametrize(
    ("keys", "header"),
    [({"username": "me", "password_file": "secret"}, by_password), ({"token_file": "secret"}, by_token)],
)


@LOGINS
@pytest.mark.parametrize("status", [401, 403])
def test_a_secret_is_read_again_when_it_is_refused(
    answers: Answers, tmp_path: Path, keys: dict[str, str], header: Header, status: int
) -> None:
    known = {"secret": "first"}
    settings, registry = open_registry(answers, tmp_path, keys)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        let_in = handler.headers["Authorization"] == header(settings, known["secret"])
        said = {"schemaType": "PROTOBUF", "schema": SCHEMA} if let_in else {"error_code": status, "message": "no"}
        handler.send_response(200 if let_in else status)
        handler.end_headers()
        handler.wfile.write(json.dumps(said).encode())

    answers["/schemas/ids/1"] = answer
    assert registry.fetch(1).texts == {"": SCHEMA}
    known["secret"] = "second"
    with pytest.raises(RegistryAccessDenied, match=r"registry\.token_file"):
        registry.fetch(1)
    assert len(answers.asked) == 2  # the same secret is not sent twice: some registries lock a user out for that
    (tmp_path / "secret").unlink()
    with pytest.raises(RegistryAccessDenied):
        registry.fetch(1)
    (tmp_path / "secret").write_text("second\n")
    assert registry.fetch(1).texts == {"": SCHEMA}
    assert registry.fetch(1).texts == {"": SCHEMA}
    sent = ["first", "first", "first", "first", "second", "second"]
    assert answers.logins == [header(settings, secret) for secret in sent]


@LOGINS
def test_no_secret_that_was_sent_is_logged(
    answers: Answers, tmp_path: Path, keys: dict[str, str], header: Header
) -> None:
    settings, registry = open_registry(answers, tmp_path, keys)
    sent = [header(settings, secret) for secret in ("first", "second")]
    answers["/schemas/ids/1"] = (401, {"error_code": 401, "message": f"neither {' nor '.join(sent)}: first, second"})
    (tmp_path / "secret").write_text("second\n")
    with pytest.raises(RegistryAccessDenied) as refused:
        registry.fetch(1)
    assert answers.logins == sent
    assert "neither Ba" in str(refused.value) or "neither Be" in str(refused.value)
    assert not any(word in str(refused.value) for word in ("first", "second", *(one.split()[1] for one in sent)))


@pytest.mark.parametrize("token", ["", "two words", "two\nlines", "\u00e9"])
def test_a_file_that_has_no_token_is_a_setting_and_not_echoed(answers: Answers, tmp_path: Path, token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"registry\.token_file") as refused:
        open_registry(answers, tmp_path, {"token_file": "secret"}, token)
    assert not token or token not in str(refused.value)


def test_two_logins_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="two logins"):
        RegistrySettings(username="me", password_file="x", token_file="y")


def open_registry(
    answers: Answers, folder: Path, keys: dict[str, str], secret: str = "first"
) -> tuple[RegistrySettings, Registry]:
    """A client whose secret lies in the folder."""
    (folder / "secret").write_text(f"{secret}\n")
    paths = {key: str(folder / name) if key.endswith("_file") else name for key, name in keys.items()}
    settings = RegistrySettings(url=answers.url, timeout_s=30, **paths)  # type: ignore[arg-type]
    return settings, Registry(settings, CAPS)
