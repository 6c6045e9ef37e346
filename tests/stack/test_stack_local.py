"""./scripts/run as a user starts it: with everything that may run on other machines, and with a source of files."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scripts.local.artifacts import ROOT
from scripts.local.objectstore import ObjectStore
from scripts.local.options import parse
from scripts.local.ports import free_ports
from scripts.local.registry import Registry
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ExitCode
from tests.chaos import read_back
from tests.chaos.stage import Stage, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
RECORDS = 2_000


@pytest.mark.nightly
def test_a_stack_with_a_bucket_and_a_cluster_takes_each_record_once(tmp_path: Path) -> None:
    names = ("kafka", "registry", "object-store")
    ports = [f"--{name}-port={port}" for name, port in zip(names, free_ports(3), strict=True)]
    arguments = ["--lake", "s3://games/demo", "--cluster", "2", "--state", str(tmp_path / "state"), "--no-page", *ports]
    command = [sys.executable, "-m", "scripts.local", "--records", str(RECORDS), *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"all {RECORDS:,} records are in the lake" in done.stdout + done.stderr
    options = parse(arguments)
    with ObjectStore(options.state, options.object_store_port, options.address.bucket):
        address = options.address
        tables = Lake(address).tables()
        raw = ("partition", "offset")
        bronze = _coordinates(address, "bronze_events", raw)
        kept_out = [_coordinates(address, f"{name}_events", raw) for name in ("quarantine", "dropped")]
        silver = [
            _coordinates(address, name, ("_partition", "_offset")) for name in tables if name.startswith("silver_")
        ]
    assert len(silver) == 7
    assert len(set(bronze)) == len(bronze) == RECORDS
    assert sorted(one for part in (*silver, *kept_out) for one in part) == sorted(bronze)
    ran = [path.read_text() for path in (tmp_path / "state").glob("worker-*/app-*/*/stderr")]
    assert sum("Finished task" in text for text in ran) >= 1
    assert not (tmp_path / "lake").exists()


@pytest.mark.nightly
def test_files_are_ingested_without_kafka_and_a_new_schema_restarts_the_app(
    new_stage: Callable[..., Stage], registry: Registry, tmp_path: Path
) -> None:
    archived, folder, lake, state = new_stage(), tmp_path / "files", tmp_path / "of-files", tmp_path / "state"
    settings, said, log = tmp_path / "settings.toml", tmp_path / "said", state / "logs" / "spark.log"
    folder.mkdir()
    settings.write_text(
        f'[lake]\npath = "{lake}"\n[registry]\nurl = "{registry.url}"\nsubject = "{archived.topic}-value"\n'
        "timeout_s = 30\n"
        f'[source]\nkind = "files"\npath = "{folder}"\nname = "plays"\nsettle_s = 0.1\n'
        "[schemas]\nresolve_timeout_s = 60\n"  # else records of a new one may wait, and no restart is needed
        "[batch]\ninterval_s = 0.5\n"
    )
    _archive(archived, folder / "a.parquet", before=0)
    command = [sys.executable, "-m", "scripts.local", "--settings", str(settings), "--state", str(state)]
    with said.open("wb") as file:
        stack = subprocess.Popen([*command, "--page-port", "0"], cwd=ROOT, stdout=file, stderr=file)
    try:
        wait_until(lambda: _bronze(lake) == RECORDS, "the first file")
        _archive(archived, folder / "b.parquet", before=RECORDS, schema_version="3")
        wait_until(lambda: _bronze(lake) == 2 * RECORDS, "the second file")
    finally:
        stack.send_signal(signal.SIGINT)
        code = stack.wait(120)
    assert code == ExitCode.DONE, said.read_text()
    assert (state / "run" / "order").read_text().split() == ["spark", "page"]
    assert sum("exit_code=75" in line for line in log.read_text().splitlines()) == 1
    for table in read_back.tables(archived.lake, "silver_"):
        assert _events(lake, table) == _events(archived.lake, table) != []


def _archive(stage: Stage, path: Path, before: int, **options: str) -> None:
    """Write the next records of the stage's topic to a file: the bronze rows after the first `before` ones."""
    stage.produce(RECORDS, **options)
    assert stage.drain() in ([ExitCode.DONE], [ExitCode.BUMP, ExitCode.DONE])
    rows = read_back.read(stage.lake, "bronze_events").sort_by([("landed_at", "ascending")])
    hidden = path.with_name(f".{path.name}")
    pq.write_table(rows.slice(before), hidden)
    hidden.rename(path)


def _bronze(lake: Path) -> int:
    return len(read_back.read(lake, "bronze_events", ["offset"])) if (lake / "bronze_events/_delta_log").exists() else 0


def _events(lake: Path, table: str) -> list[str]:
    """The decoded fields of each row."""
    rows = read_back.read(lake, table)
    return sorted(map(str, rows.select([name for name in rows.column_names if not name.startswith("_")]).to_pylist()))


def _coordinates(address: StorageAddress, table: str, columns: tuple[str, str]) -> list[tuple[int, int]]:
    rows = read_back.read(address, table, list(columns))
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
