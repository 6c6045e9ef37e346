"""The real app on a lake in a real object store."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from scripts.local.kafka import Kafka
from scripts.local.objectstore import ObjectStore
from scripts.local.registry import Registry
from spark_app.lake.files.local import open_storage
from spark_app.lake.files.object_clients import read_credentials
from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ExitCode
from spark_app.page.views.query.jobs import one_query
from spark_app.page.views.table.jobs import table_facts
from spark_app.settings.models import Settings
from tests.chaos import read_back
from tests.chaos.lab import Lab
from tests.chaos.scenarios import takeovers
from tests.chaos.stage import Stage, kill, wait_for, wait_until
from tests.support.pages import link

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
GAMES = "rummy,spades,uno"
AGGREGATES = {
    "sessions": {"function": "count"},
    "devices": {"function": "distinct", "field": "device_id"},
    "middle": {"function": "median", "field": "_offset"},
}


@pytest.fixture
def stage(
    tmp_path: Path, kafka: Kafka, registry: Registry, seaweedfs: ObjectStore, request: pytest.FixtureRequest
) -> Stage:
    topic = re.sub(r"\W+", "_", request.node.name)[:80]
    return Stage(tmp_path, kafka, registry, topic, seaweedfs, LAKE__COMPACT_FILES="6")


@pytest.mark.nightly
def test_a_lake_in_a_bucket_lives_through_a_bump_a_replay_and_a_rebuild(stage: Stage) -> None:
    gold = {"GOLD__AGGREGATES": json.dumps(AGGREGATES)}  # Spark computes the last two
    stage.produce(3_000, games=GAMES, poison="0.02")
    assert stage.drain(TABLES__ALLOWLIST='["rummy", "uno"]', **gold)[-1] == 0
    stage.produce(2_000, games=GAMES, schema_version="2")
    app = stage.start(TABLES__ALLOWLIST='["rummy", "uno"]', **gold)
    try:
        wait_for(app, 120)
        codes = [app.poll()]
    finally:
        kill(app)
    codes += stage.drain(**gold)
    assert codes in ([ExitCode.BUMP, 0], [None, 0], [None, ExitCode.BUMP, 0])
    replayed = stage.command("replay", **gold)
    assert replayed.returncode == 0, replayed.stderr
    address = stage.address
    assert "silver_spades_events" in Lake(address).tables()
    Lake(address).storage.delete_all("silver_uno_events")
    rebuilt = stage.command("rebuild", "uno", **gold)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert stage.drain(**gold) == [0]
    assert stage.verify(**gold) == {}
    assert stage.command("doctor", **gold).stdout.strip() == "nothing is wrong"
    rows = read_back.read(address, "gold_uno_player_agg")
    assert rows.column_names == ["gamer_id", *AGGREGATES]
    shell = stage.command("shell", stdin='print(sql("select count(*) from bronze_events").fetchall())\n')
    assert "[(5000,)]" in shell.stdout
    _check_page(stage)
    _check_secrets(stage)


def test_rows_join_a_reference_table_of_the_bucket_and_its_next_version(stage: Stage, seaweedfs: ObjectStore) -> None:
    studios = seaweedfs.address(f"{stage.topic}_studios", stage.lake.with_name("studios"))
    section = {"path": studios.root, "key": "game_name", "columns": ["edition"], "refresh_s": 0.2}
    settings = {"REFERENCE": json.dumps({"studios": section}), "BATCH__INTERVAL_S": "0"}
    _write_studios(studios, edition=1)
    stage.produce(1_000, games=GAMES)
    app = stage.start(**settings)
    try:
        wait_until(lambda: stage.unit() > 0, "a unit", 120)
        _write_studios(studios, edition=2)
        time.sleep(1)  # the app looks while it ingests
        stage.produce(500, games=GAMES)
        wait_until(lambda: set(_editions(stage)) == {1, 2}, "the new version", 60)
    finally:
        kill(app)
    assert stage.drain(**settings) == [0]
    assert stage.verify(**settings) == {}
    rows = Counter(_editions(stage))
    assert rows.total() == 1_500
    assert rows[1] >= 1_000


def _write_studios(address: StorageAddress, edition: int) -> None:
    table = pa.table({"game_name": GAMES.split(","), "edition": [edition] * 3})
    write_deltalake(address.root, table, mode="overwrite", storage_options=open_storage(address).delta_options)


def _editions(stage: Stage) -> list[int | None]:
    """`edition` of each row of silver."""
    names = [f"silver_{game}_events" for game in GAMES.split(",")]
    return [row for name in names for row in read_back.read(stage.address, name, ["edition"])["edition"].to_pylist()]


def _check_page(stage: Stage) -> None:
    """The page of a lake in a bucket has its own token on this machine, and its jobs read the tables."""
    page = stage.spawn("page", PAGE__PORT="0")
    try:
        wait_until(lambda: link(Lake(stage.address)), "an address", 60)
        with urllib.request.urlopen(link(Lake(stage.address)).replace("/?", "/metrics?"), timeout=30) as answer:
            assert Lake(stage.address).known_identity() in answer.read().decode()
    finally:
        kill(page)
    settings = Settings(lake={"path": stage.address.root})  # type: ignore[arg-type]
    lake = Lake(stage.address)
    assert one_query(lake, settings, "SELECT count(*) FROM silver_uno_events")["rows"][0][0] > 0
    facts = table_facts(lake, settings, "silver_rummy_events")
    assert {part: facts[part] for part in ("rows", "rules", "rates") if "failed" in str(facts[part])[:20]} == {}


def _check_secrets(stage: Stage) -> None:
    """No key of the store is where somebody may read it."""
    said = stage.log.read_text() + stage.command("settings").stdout + stage.command("status", "--json").stdout
    lake = Lake(stage.address)
    kept = b"".join(lake.storage.get(key) for key in (lake.settings, lake.fixed_settings, lake.status))
    for secret in list(read_credentials(stage.address.credentials_file).values()):
        assert secret not in said
        assert secret.encode() not in kept


@pytest.mark.nightly
def test_an_object_store_that_dies_costs_no_record(tmp_path: Path, kafka: Kafka, registry: Registry) -> None:
    with ObjectStore(tmp_path / "store") as store:
        (tmp_path / "app").mkdir()
        stage = Stage(
            tmp_path / "app", kafka, registry, "dying_store", store, BATCH__MAX_RECORDS="300", BATCH__INTERVAL_S="0"
        )
        stage.produce(6_000, games=GAMES)
        app = stage.start()
        try:
            wait_until(lambda: stage.unit() > 2, "units", 120)
            for _ in range(3):
                store.kill()
                restarting = threading.Thread(target=store.start)
                time.sleep(1)
                restarting.start()
                restarting.join()
                time.sleep(2)
            assert app.poll() in (None, ExitCode.UNREACHABLE, 0)
        finally:
            kill(app)
        assert stage.drain()[-1] == 0
        assert stage.verify() == {}


@pytest.mark.nightly
def test_what_a_paused_app_still_does_after_a_takeover_is_seen_by_nobody(
    tmp_path: Path, kafka: Kafka, registry: Registry, seaweedfs: ObjectStore
) -> None:
    lab = Lab(tmp_path, kafka, registry, seaweedfs)
    found = takeovers.play(lab, ["ingest.manifest.before", "ingest.commit.middle.before", "compact.before"])
    assert (dict(found.faults), found.figures["met"]) == ({}, 3)
