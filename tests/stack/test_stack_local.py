"""./scripts/run as a user starts it, with everything that may run on other machines: an object store and a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.campaign import read_back
from scripts.local.artifacts import ROOT
from scripts.local.objectstore import ObjectStore
from scripts.local.options import parse
from scripts.local.ports import free_port
from spark_app.model.place import Place
from spark_app.storage.lake import Lake

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
RECORDS = 2_000


@pytest.mark.nightly
def test_a_stack_with_a_bucket_and_a_cluster_takes_each_record_once(tmp_path: Path) -> None:
    ports = [f"--{name}-port={free_port()}" for name in ("kafka", "registry", "object-store")]
    arguments = ["--lake", "s3://games/demo", "--cluster", "2", "--state", str(tmp_path / "state"), "--no-page", *ports]
    command = [sys.executable, "-m", "scripts.local", "--records", str(RECORDS), *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"all {RECORDS:,} records are in the lake" in done.stdout + done.stderr
    options = parse(arguments)
    with ObjectStore(options.state, options.object_store_port, options.place.bucket):
        place = options.place
        tables = Lake(place).tables()
        raw = ("partition", "offset")
        bronze = _coordinates(place, "bronze_events", raw)
        kept_out = [_coordinates(place, f"{name}_events", raw) for name in ("quarantine", "dropped")]
        silver = [_coordinates(place, name, ("_partition", "_offset")) for name in tables if name.startswith("silver_")]
    assert len(silver) == 7
    assert len(set(bronze)) == len(bronze) == RECORDS
    assert sorted(one for part in (*silver, *kept_out) for one in part) == sorted(bronze)
    ran = [path.read_text() for path in (tmp_path / "state").glob("worker-*/app-*/*/stderr")]
    assert sum("Finished task" in text for text in ran) >= 1
    assert not (tmp_path / "lake").exists()


def _coordinates(place: Place, table: str, columns: tuple[str, str]) -> list[tuple[int, int]]:
    rows = read_back.read(place, table, list(columns))
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
