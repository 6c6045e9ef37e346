"""A folder full of damaged and odd files: each is taken or named, in bounded memory, and nothing outside is read."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from spark_app.lake.files.local import LocalStorage
from spark_app.model.errors import ContractError
from spark_app.sources.files.delta_export import LOG, DeltaListing
from spark_app.sources.files.folder import DiskFolder
from spark_app.sources.files.ingested import IngestedFiles
from tests.support.file_sources import framed, parquet_table
from tests.support.mutations import mutate
from tests.support.strange_files import damage, write
from tests.unit.sources.test_file_bombs import BOMB

MOST_MEMORY = 3 << 29
CANARY = "a canary outside of the folder"


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure can be repeated with PROTOLAKE_TEST_SEED."""
    found = int(os.environ.get("PROTOLAKE_TEST_SEED", random.randrange(1 << 32)))
    print(f"PROTOLAKE_TEST_SEED={found}")
    return found


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "secret.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"value": base64.b64encode(CANARY.encode()).decode()}) + "\n")
    return path


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.nightly)])
def test_each_of_many_strange_files_is_taken_or_named(tmp_path: Path, secret: Path, seed: int, count: int) -> None:
    folder, lake, spare = tmp_path / "in", tmp_path / "lake", tmp_path / "spare"
    for one in (folder, lake, spare):
        one.mkdir()
    subprocess.run([sys.executable, "-c", BOMB, str(folder)], check=True)
    names = write(folder, count, random.Random(seed), secret, spare) | {
        path.name for path in folder.glob("*.parquet") if path.is_file()
    }
    before = {path: path.read_bytes() for path in secret.parent.iterdir()}
    command = [sys.executable, "-m", "tests.support.strange_files", str(folder), str(lake), CANARY]
    run = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert names - {*found["taken"], *found["named"], *found["without rows"]} == set()
    assert "\\xff.json" in found["named"]
    assert (found["secrets"], before) == (0, {path: path.read_bytes() for path in secret.parent.iterdir()})
    assert len(found["taken"]) > count / 50
    assert all(reason and reason != "None" for reason in found["named"].values())
    assert found["memory"] < MOST_MEMORY
    files = (path for path in lake.rglob("*") if path.is_file())
    assert not any(CANARY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.nightly)])
def test_a_strange_log_of_delta_is_read_or_refused(tmp_path: Path, secret: Path, seed: int, count: int) -> None:
    dice = random.Random(seed)
    whole = tmp_path / "whole"
    for _ in range(3):
        write_deltalake(whole, parquet_table(framed(3)), mode="append")
    DeltaTable(whole).create_checkpoint()
    write_deltalake(whole, parquet_table(framed(3)), mode="append")
    entries = sorted(path.name for path in (whole / LOG).iterdir())
    ended = dict.fromkeys(("read", "refused"), 0)
    for number in range(count):
        folder = tmp_path / f"t{number}"
        shutil.copytree(whole, folder)
        path = folder / LOG / dice.choice(entries)
        data, other = path.read_bytes(), (folder / LOG / dice.choice(entries)).read_bytes()
        path.unlink()
        match number % 8:
            case 0:
                path.symlink_to(secret)
            case 1:
                os.mkfifo(path)
            case 2:
                path.write_bytes(data.replace(b"part-", f"../../{secret.parent.name}/part-".encode()))
            case 3 | 4:
                path.write_bytes(damage(data, other, dice))
            case _:
                path.write_bytes(mutate(data, other, dice))
        ended[read_table(folder, tmp_path / f"lake{number}")] += 1
    assert min(ended.values()) > 0


def read_table(folder: Path, lake: Path) -> str:
    """Find the files of a table, from its beginning and then as a run that follows it."""
    storage = LocalStorage(lake)
    storage.create_folders("taken")
    try:
        for began in (None, {"version": 0}):
            if began is not None:
                (lake / "taken" / "began.json").write_text(json.dumps(began))
            source = DiskFolder(str(folder))
            listing = DeltaListing(source, IngestedFiles(storage, "taken"), storage, "taken", -1, ["value"])
            for listed, _ in listing.find([], lambda listed: False):
                assert (folder / listed.key).resolve().is_relative_to(folder.resolve())
    except ContractError:
        return "refused"
    return "read"
