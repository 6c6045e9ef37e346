"""A worker that does not see the files which the app sees: the first job names it, and a unit waits for it."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_app.lake.files.store_errors import failed as store_failed
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.model.offsets import ReadFailure
from spark_app.model.reports import Report
from spark_app.settings.models import Settings
from spark_app.sources.files.folder import DiskFolder, Listed
from spark_app.sources.files.input import FileFailed
from spark_app.units.driver import file_stream, worker_check
from spark_app.units.driver.file_stream import FileStream, origin_of
from spark_app.units.driver.ingest import RunContext
from spark_app.units.driver.open_lake import OpenLake
from spark_app.units.driver.worker_check import FileTrial
from tests.support.exports import DiskExports, Exports
from tests.support.file_sources import framed, json_text, parquet_bytes

LINES = json_text(framed(2)).encode()


def answer(tmp_path: Path, trial: FileTrial) -> str:
    """What a worker says."""
    lake = Lake(tmp_path / "lake")
    lake.identity()
    [(host, wrong)] = worker_check._check_of(lake, "", None, pickle.loads(pickle.dumps(trial)))([1])
    assert host == socket.gethostname()
    return wrong


def test_a_worker_that_sees_the_files_is_right(tmp_path: Path, exports: Exports) -> None:
    exports.write("notes.txt", b"x")
    exports.write("a.json", LINES)
    trial = FileTrial.of(worker_check.open_folder(exports.address))
    assert trial.file is not None
    assert (trial.file.key, answer(tmp_path, trial)) == ("a.json", "")


def test_a_worker_without_the_folder_or_its_files_is_named(tmp_path: Path) -> None:
    exports = DiskExports(tmp_path / "in")
    empty = FileTrial.of(DiskFolder(exports.address.root))
    assert (empty.file, answer(tmp_path, empty)) == (None, "")
    exports.write("a.json", LINES)
    trial = FileTrial.of(DiskFolder(exports.address.root))
    exports.remove("a.json")
    assert answer(tmp_path, trial) == (
        f"source.path: it does not see {exports.folder}/a.json, which the app sees: use a folder that all machines "
        "share under the same path, or a bucket"
    )
    assert trial.is_over(answer(tmp_path, trial))  # the app does not see it any more, either
    exports.folder.rmdir()
    assert answer(tmp_path, empty).startswith(f"source.path: it has no folder {exports.folder}: use")
    exports.folder.mkdir()
    exports.write("a.json", LINES)
    assert not trial.is_over(trial.unseen)


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception, key: str = "a.json") -> None:
    opened = DiskFolder.open_input

    def fail(folder: DiskFolder, listed: Listed) -> Any:
        if listed.key == key:
            raise error
        return opened(folder, listed)

    monkeypatch.setattr(DiskFolder, "open_input", fail)


def test_a_worker_that_may_not_read_is_named_and_a_store_that_is_down_is_not_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = DiskExports(tmp_path / "in")
    exports.write("a.json", LINES)
    trial = FileTrial.of(DiskFolder(exports.address.root))
    refuse(monkeypatch, PermissionError(13, "no access"))
    assert "it cannot read" in answer(tmp_path, trial)
    assert "no access" in answer(tmp_path, trial)
    refuse(monkeypatch, store_failed("s3://b/a.json", "down", ""))
    with pytest.raises(UnreachableError):
        answer(tmp_path, trial)


def test_a_file_that_the_app_itself_cannot_read_is_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = DiskExports(tmp_path / "in")
    for name in ("a.json", "b.json"):
        exports.write(name, LINES)
    refuse(monkeypatch, PermissionError(13, "no access"))
    trial = FileTrial.of(DiskFolder(exports.address.root))
    assert trial.file is not None
    assert trial.file.key == "b.json"


def inline(numbers: Any, tasks: int) -> Any:
    """A job that runs here."""
    return SimpleNamespace(
        mapPartitions=lambda ask: SimpleNamespace(collect=lambda: [one for n in numbers for one in ask([n])])
    )


def test_a_start_on_a_cluster_asks_for_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = DiskExports(tmp_path / "in")
    exports.write("a.json", LINES)
    lake = Lake(tmp_path / "lake")
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(parallelize=inline, defaultParallelism=2))
    source = {"kind": "files", "path": exports.address.root}
    settings = Settings(source=source, lake={"path": str(lake.root)})  # type: ignore[arg-type]
    monkeypatch.setattr(worker_check, "WAIT_S", 0)
    worker_check.check_workers(session, lake, settings)
    monkeypatch.setattr(FileTrial, "wrong", lambda trial: trial.unseen)
    with pytest.raises(ConfigurationError, match=r"worker \S+ cannot be used: source\.path: it does not see .*a\.json"):
        worker_check.check_workers(session, lake, settings)


class Waiting:
    """A run without Spark. `source` and `batch` are settings.

    Attributes:
        said: what the status says it waits for.
    """

    def __init__(
        self,
        tmp_path: Path,
        take: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
        batch: dict[str, Any] | None = None,
        **source: Any,
    ):
        lake = Lake(tmp_path / "lake")
        lake.prepare()
        settings = Settings(
            source={"kind": "files", "path": str(tmp_path / "in"), "settle_s": 0.0} | source,  # type: ignore[arg-type]
            lake={"path": str(lake.root)},  # type: ignore[arg-type]
            run={"connect_timeout_s": 5},  # type: ignore[arg-type]
            batch=batch or {},  # type: ignore[arg-type]
        )
        self.said: list[str | None] = []
        status: Any = SimpleNamespace(waiting=self.said.append, set_source=lambda source: None, emit=lambda event: None)
        disk: Any = SimpleNamespace(retry=lambda take: take())
        run = RunContext(status, disk, threading.Event(), contextlib.nullcontext())
        self.opened = OpenLake.of(lake, settings)
        self.stream = FileStream(None, self.opened, None, run, False)  # type: ignore[arg-type]
        self.stream._ingest = SimpleNamespace(commit_range=take, batch_description="")  # type: ignore[assignment]
        monkeypatch.setattr(file_stream, "RETRY_S", 0)
        self.now = 100.0
        monkeypatch.setattr("spark_app.units.driver.file_stream.time.monotonic", lambda: self.now)

    def attempt(self, after_s: float = 0) -> bool | None:
        self.now += after_s
        return self.stream._attempt(origin_of("files", False))


def gone(*given: Any) -> None:
    raise FileFailed(ReadFailure.SILENT, "a.json is gone", [], "a.json")


def test_a_file_that_only_tasks_cannot_read_is_waited_for_and_ends_the_app_with_69(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskExports(tmp_path / "in").write("a.json", LINES)
    waiting = Waiting(tmp_path, gone, monkeypatch)
    assert [waiting.attempt(), waiting.attempt(4)] == [False, False]
    assert (
        waiting.said
        == [
            f"source.path {tmp_path}/in cannot be read: in a task a.json is gone, and the app sees the file as it was "
            "planned; the app retries for 5 s"
        ]
        * 2
    )
    with pytest.raises(UnreachableError, match=r"in a task a\.json is gone.*for 6 s"):
        waiting.attempt(2)


def test_a_file_that_changed_is_planned_anew_without_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports = DiskExports(tmp_path / "in")
    exports.write("a.json", LINES)

    def replaced(*given: Any) -> None:
        exports.write("a.json", LINES)
        os.utime(exports.folder / "a.json", (1, 1))
        gone()

    waiting = Waiting(tmp_path, replaced, monkeypatch)
    assert [waiting.attempt(10) for _ in range(3)] == [False] * 3
    assert waiting.said == []


def test_a_server_that_does_not_answer_after_a_failed_task_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskExports(tmp_path / "in").write("a.json", LINES)

    def away(*given: Any) -> None:
        def fail(folder: DiskFolder, key: str) -> None:
            raise OSError(116, "stale")

        monkeypatch.setattr(DiskFolder, "look", fail)
        gone()

    waiting = Waiting(tmp_path, away, monkeypatch)
    assert waiting.attempt() is False
    assert "stale" in str(waiting.said)


def test_a_run_that_ends_by_itself_does_not_pass_over_half_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written again all the time, and the app says so."""
    exports = DiskExports(tmp_path / "in")
    data = parquet_bytes(framed(20), 10)
    exports.write("a.parquet", data)

    def take(start: Any, end: Any, origin: Any, source: dict[str, Any]) -> None:
        ends = {"start": start, "end": end, "topic_ids": {"files": "files"}}
        waiting.opened.commit(Report(), "ingest", ends | source)

    waiting = Waiting(tmp_path, take, monkeypatch, {"max_records": 10}, settle_s=50.0)
    assert [waiting.attempt(), waiting.attempt(60)] == [None, True]
    for after_s in (0, 40):
        exports.write("a.parquet", data[: 500 + after_s])
        assert (waiting.attempt(after_s), waiting.stream._is_done()) == (None, False)
        assert "a.parquet is being written again, but 10 of its 20 rows are ingested" in str(waiting.said[-1])
    exports.write("a.parquet", data)
    assert waiting.attempt(40) is None
    with pytest.raises(UnreachableError, match=r"is being written again.*start again when it is complete"):
        waiting.stream._is_done()
    assert (waiting.attempt(60), waiting.attempt()) == (True, None)
    assert (waiting.stream._is_done(), waiting.said[-1]) == (True, None)
