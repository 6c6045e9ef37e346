"""The exit codes, each from the real command; those that take Spark or Kafka are in tests/stack."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_app.app.cli import entry
from spark_app.lake.files.state_files import read_json
from spark_app.lake.lake import Lake
from spark_app.model.errors import ExitCode
from spark_app.settings.models import Settings
from spark_app.tables.fixed_settings import check_fixed_settings
from tests.chaos.disk import empty, fill
from tests.chaos.units import ingest_unit, open_lake
from tests.support.disk import full_disk
from tests.support.units import open_committer

ROOT = Path(__file__).parents[3]
NOBODY = {"KAFKA__BROKERS": "127.0.0.1:1", "REGISTRY__URL": "http://127.0.0.1:1", "RUN__CONNECT_TIMEOUT_S": "1"}


@contextlib.contextmanager
def command(lake: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    own = {"LAKE__PATH": str(lake)} | NOBODY | settings
    env = {k: v for k, v in os.environ.items() if not k.startswith("PROTOLAKE_")}
    env |= {f"PROTOLAKE_{key}": value for key, value in own.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_app", *arguments], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def end(lake: Path, *arguments: str, **settings: str) -> tuple[int, str]:
    """Exit code and last line of a command."""
    with command(lake, *arguments, **settings) as process:
        _, said = process.communicate(timeout=60)
        return process.returncode, said.strip().splitlines()[-1] if said.strip() else ""


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One committed unit."""
    lake = open_lake(tmp_path / "lake")
    check_fixed_settings(lake, Settings())
    manifests, committer = open_committer(lake)
    unit = ingest_unit(lake, 1, {"bronze_events": pa.table({"offset": [0]})})
    manifests.commit(unit)
    committer.apply(unit)
    return lake


def alter(lake: Lake) -> None:
    path = lake.path(lake.manifests) / "000000000001.json"
    path.write_text(path.read_text().replace("bronze_events", "bronze_evenst"))


def test_a_wrong_option_is_64(lake: Lake) -> None:
    assert end(lake.root, "run", "--no-such-option")[0] == ExitCode.USAGE
    assert end(lake.root, "replay", "--offsets", "5:1") == (
        ExitCode.USAGE,
        "protolake: --offsets: '5:1' is not FIRST:END with FIRST below END",
    )


def test_a_schema_to_warn_about_is_1(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "orders.proto"
    assert end(lake.root, "schemas", "check", str(file))[0] == ExitCode.USAGE
    file.write_text("nonsense")
    assert end(lake.root, "schemas", "check", str(file))[0] == 1
    file.write_text('syntax = "proto3"; message Event { string a = 1; }')
    assert end(lake.root, "schemas", "check", str(file))[0] == ExitCode.DONE


def test_a_wrong_setting_is_78(lake: Lake) -> None:
    code, said = end(lake.root, "run", KAFKA__TOPIC=" ")
    assert (code, "kafka.topic" in said) == (ExitCode.CONFIGURATION, True)


def test_a_lake_that_contradicts_itself_is_65(lake: Lake) -> None:
    alter(lake)
    code, said = end(lake.root, "run")
    assert (code, "was altered after it was written" in said) == (ExitCode.LOSS, True)
    assert read_json(lake.storage, lake.status)["state"] == "held"


def test_a_lake_in_use_is_69(lake: Lake) -> None:
    lake.lease.acquire()
    code, said = end(lake.root, "run")
    assert (code, "is in use by another process" in said) == (ExitCode.UNREACHABLE, True)
    assert not lake.path(lake.status).exists()  # it belongs to whoever holds the lake


def test_a_bug_is_70(lake: Lake) -> None:
    (lake.path(lake.state) / "starts.json").write_text('{"failed": "many", "unit": 1}')
    code, said = end(lake.root, "run")
    assert (code, "bug type=ValueError" in said) == (ExitCode.BUG, True)


def test_a_command_on_a_full_disk_is_73(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as folder:
        empty(folder)
        (folder / "bronze_events" / "_delta_log").mkdir(parents=True)
        open_lake(folder)
        fill(folder)
        code, said = end(folder, "replay")
        assert (code, "No space left on device" in said) == (ExitCode.NO_SPACE, True)


def test_a_held_app_lets_go_of_the_lake_and_logs_why_until_it_is_stopped(lake: Lake) -> None:
    alter(lake)
    with command(lake.root, "run", RUN__HOLD="true") as process:
        wait_for(lambda: (read_json(lake.storage, lake.status) or {}).get("state") == "held", "being held")
        lake.lease.acquire(20)
        lake.lease.release()
        assert process.poll() is None
        assert end(lake.root, "status", "--healthy")[0] == 1
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.DONE
    assert "held with exit code 65" in said


def test_a_full_disk_at_start_is_waited_for(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as folder, command(folder, "run") as process:
        assert process.stderr is not None
        wait_for(lambda: "waiting" in process.stderr.readline(), "waiting")  # type: ignore[union-attr]
        assert not (folder / "_protolake" / "status.json").exists()
        empty(folder)
        wait_for((folder / "_protolake" / "status.json").exists, "going on")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == ExitCode.DONE


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_stop_while_it_is_loaded_is_a_clean_end(tmp_path: Path, seconds: float) -> None:
    with full_disk(tmp_path / "disk") as folder, command(folder, "run") as process:
        wait_for(lambda: catches(process.pid, signal.SIGTERM), "a handler")
        time.sleep(seconds)  # a moment of the start, whichever that is on this machine
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == ExitCode.DONE


def catches(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_starts_that_achieve_nothing_wait_with_the_lake_free(lake: Lake) -> None:
    (lake.path(lake.state) / "starts.json").write_text('{"failed": 3, "unit": 1}')
    with command(lake.root, "run", RUN__BACKOFF_S="600") as process:
        wait_for(lambda: "waits 600 s" in str((read_json(lake.storage, lake.status) or {}).get("reason")), "waiting")
        lake.lease.acquire()
        lake.lease.release()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == ExitCode.DONE
    assert not (lake.path(lake.state) / "starts.json").exists()


def test_a_bug_in_any_command_is_70(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(entry, "app", broken)
    with pytest.raises(SystemExit) as end:
        entry.main()
    said = capsys.readouterr().err
    assert (end.value.code, "Traceback" in said, "nobody thought of this" in said) == (ExitCode.BUG, True, True)
