"""A lake in a bucket: whose store it is in, and how the programs of the stack and single commands reach it."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scripts.local import command, environment, java, lakes, status
from scripts.local.artifacts import ROOT
from scripts.local.claim import Claim
from scripts.local.errors import CONFIGURATION, UNREACHABLE, USAGE, LocalError
from scripts.local.options import Options, parse
from scripts.local.ports import free_port
from scripts.local.reports import Reports
from scripts.local.stack import Stack
from spark_app.lake.lake import Lake

ADDRESS = "s3://games/demo"
OWN = ["--brokers", "k:1", "--registry", "http://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lakes, "NOTES", tmp_path / "notes")
    return tmp_path / "notes"


def in_bucket(state: Path, *arguments: str) -> Options:
    return parse(["--lake", ADDRESS, "--state", str(state), *arguments])


def told(options: Options) -> dict[str, str]:
    """What the app is told about the lake and its store."""
    found = environment.for_app(options, java.find(), ROOT, "b", "r")
    return {name: text for name, text in found.items() if "__LAKE" in name or "LAKE__" in name or "STORE__" in name}


def test_a_store_is_started_for_a_bucket_that_no_setting_places(tmp_path: Path) -> None:
    options = in_bucket(tmp_path)
    assert (options.starts_store, options.lake) == (True, ADDRESS)
    variables = told(options)
    local = variables.pop("PROTOLAKE_STORE__LOCAL_PATH")
    assert Path(local).is_relative_to(tmp_path)
    assert variables == {
        "PROTOLAKE_LAKE__PATH": ADDRESS,
        "PROTOLAKE_STORE__ENDPOINT": "http://127.0.0.1:8333",
        "PROTOLAKE_STORE__REGION": "us-east-1",
        "PROTOLAKE_STORE__CREDENTIALS_FILE": str(tmp_path / "objects" / "credentials"),
    }
    moved = in_bucket(tmp_path, "--object-store-port", "8444")
    assert (moved.address.endpoint, moved.address.local) == ("http://127.0.0.1:8444", local)


def test_each_lake_has_a_folder_of_its_own_on_the_machine(tmp_path: Path) -> None:
    addresses = [
        parse(["--lake", lake, "--state", str(tmp_path)]).address for lake in (ADDRESS, f"{ADDRESS}/2", "s3://g-2/x")
    ]
    assert len({address.local for address in addresses}) == 3


def test_a_lake_in_a_folder_starts_no_store(tmp_path: Path) -> None:
    options = parse(["--lake", str(tmp_path / "lake")])
    assert not options.starts_store
    assert told(options) == {"PROTOLAKE_LAKE__PATH": str(tmp_path / "lake")}


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINT", "https://minio.example"), ("REGION", "eu-central-1"), ("CREDENTIALS_FILE", "/keys")],
)
def test_a_store_of_the_users_own_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[store]\n{name.lower()} = "{value}"\n[lake]\npath = "{ADDRESS}"\n')
    by_file = parse(["--settings", str(file)])
    monkeypatch.setenv(f"PROTOLAKE_STORE__{name}", value)
    for options in (by_file, in_bucket(tmp_path)):
        assert (options.starts_store, options.lake) == (False, ADDRESS)
        assert getattr(options.address, name.lower()) == value
        assert told(options) == {"PROTOLAKE_LAKE__PATH": ADDRESS}


def test_the_environment_and_a_settings_file_may_name_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[lake]\npath = "{ADDRESS}"\n')
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of something else")
    by_file = parse(["--settings", str(file)])
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", f"{ADDRESS}/")
    assert [(one.starts_store, one.lake) for one in (by_file, parse([]))] == [(True, ADDRESS)] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lake", "s3://games/a b"], "--lake s3://games/a b is neither a folder nor s3://bucket/prefix"),
        (["--lake", "http://games/a"], "--lake http://games/a is neither"),
        (["--lake", "s3://"], "--lake s3:// is neither"),
        (["--lake", "s3://g/a"], "a store makes no bucket 'g': give a name of 3 to 63"),
        (["--lake", "s3://a..b/a"], "a store makes no bucket 'a..b'"),
        (["--lake", "gs://games/a"], "gs://games/a was never tested; set lake.untested"),
        (["--lake", ADDRESS, "--fresh"], f"--fresh moves folders, .* name another prefix, such as --lake {ADDRESS}-2"),
        (["--lake", ADDRESS, "--kafka-port", "8333"], "--kafka-port and --object-store-port are both 8333"),
        (["--lake", ADDRESS, *OWN, "--object-store-port", "0"], "--object-store-port: '0' is not a port"),
    ],
)
def test_what_cannot_be_a_lake_is_a_usage_error(arguments: list[str], says: str) -> None:
    with pytest.raises(LocalError, match=says) as caught:
        parse(arguments)
    assert caught.value.code == USAGE


def test_the_port_of_a_store_that_is_not_started_may_be_in_use(tmp_path: Path) -> None:
    assert parse(["--kafka-port", "8333", "--lake", str(tmp_path / "lake")]).kafka_port == 8333
    assert in_bucket(tmp_path, *OWN, "--kafka-port", "8333").starts_store


def test_a_single_command_finds_the_store_that_a_stack_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = in_bucket(tmp_path, "--object-store-port", str(free_port()))
    ask = ["status", "--lake", f"{ADDRESS}/"]
    assert "PROTOLAKE_STORE__ENDPOINT" not in command.lake_variable(ask)
    lakes.note(options.address, options.state)
    with pytest.raises(LocalError, match=rf"does not run: start it with .* --lake {ADDRESS}/ --state") as caught:
        command.lake_variable(ask)
    assert caught.value.code == UNREACHABLE
    for quiet in (["settings", "--lake", ADDRESS], ["status", "--lake", ADDRESS, "--help"]):
        assert command.lake_variable(quiet)["PROTOLAKE_STORE__ENDPOINT"] == options.address.endpoint
    monkeypatch.setattr(lakes, "is_listening", lambda _: True)
    found = command.lake_variable(ask)
    assert found.items() >= told(options).items()
    assert "127.0.0.1" in found["NO_PROXY"]
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", ADDRESS)
    assert command.lake_variable(["status"]) == found
    monkeypatch.setenv("PROTOLAKE_STORE__REGION", "eu-central-1")
    assert command.lake_variable(["status"]) == {"PROTOLAKE_LAKE__PATH": ADDRESS}


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_note_that_cannot_be_read_is_none(notes: Path, tmp_path: Path, text: str) -> None:
    lakes.note(in_bucket(tmp_path).address, tmp_path)
    (note,) = notes.iterdir()
    note.write_text(text)
    assert lakes.recall(ADDRESS) == {}


def test_a_bucket_that_cannot_be_written_ends_the_start_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("nothing")
    keys.chmod(0o600)
    monkeypatch.setenv("PROTOLAKE_STORE__CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("PROTOLAKE_STORE__ENDPOINT", f"http://127.0.0.1:{free_port()}")
    stack = Stack(in_bucket(tmp_path / "state", *OWN), Claim(tmp_path / "state"))
    with pytest.raises(LocalError, match=r"store.credentials_file: .*/keys has no") as caught:
        stack.up()
    assert caught.value.code == CONFIGURATION
    assert stack.supervisor.processes() == []


def test_the_table_does_not_wait_for_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, reads = threading.Event(), []

    def read(lake: Lake) -> status.Status:
        reads.append(lake)
        assert going.wait(120)
        return status.Status(bronze=len(reads))

    monkeypatch.setattr(status, "read", read)
    monkeypatch.setattr("scripts.local.reports.EVERY_S", 0.01)
    reports = Reports(Lake(in_bucket(tmp_path).address))
    assert reports.latest() == status.Status()
    going.set()
    _wait_for(lambda: reports.latest().bronze > 1)
    reports.end()
    _wait_for(lambda: "reports" not in {thread.name for thread in threading.enumerate()})


def _wait_for(what: Any) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)
