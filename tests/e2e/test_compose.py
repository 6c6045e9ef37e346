"""`docker compose up`, a schema bump, and every record of Kafka at its place in the tables, read from the host."""

import contextlib
import json
import stat
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from scripts.local import pins
from scripts.local.errors import LocalError
from tests.e2e.compose import Stack, missing
from tests.support.browsers import browser, opened

__all__ = ["browser", "opened"]
TOPIC = "protobuf_game_stream"
RECORDS = 20_000
GAMES = ("rummy", "spades", "euchre", "go_fish", "uno", "hearts", "poker")
COORDINATES = ["_topic", "_partition", "_offset"]

Identity = tuple[str, int, int]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if reason := missing():
        pytest.skip(f"needs Docker with Compose v2: {reason}")
    found = Stack(tmp_path_factory.mktemp("compose"))
    found.remove()
    found.run("build")
    yield found
    found.remove()


def test_only_the_loopback_is_published(stack: Stack) -> None:
    services = json.loads(stack.run("--profile", "*", "config", "--format", "json"))["services"]
    published = [port["host_ip"] for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1"] * 3


def test_a_digest_is_one_that_the_engine_knows_or_none(stack: Stack) -> None:
    """Images that were pulled have one; those that were built or loaded where no registry is have none, and say so."""
    for image in pins.images(pins.FILE.read_text()):
        try:
            digest = pins.pulled(image)
        except LocalError as fault:
            assert f"{image} has no digest" in str(fault)  # noqa: PT017
        else:
            subprocess.run(["docker", "image", "inspect", f"{image}@{digest}"], capture_output=True, check=True)


def test_the_page_comes_before_the_app(stack: Stack) -> None:
    stack.run("up", "-d", "--wait", "page")
    state = stack.lake / "_protolake"
    folders = [state, *(state / name for name in ("page", "requests", "spool", "spool/page"))]
    owner = stack.container("page")["Config"]["User"]
    for folder in folders:
        found = folder.stat()
        assert (f"{found.st_uid}:{found.st_gid}", stat.S_IMODE(found.st_mode)) == (owner, 0o750)
    code, said = stack.ask_page("/health", token_of(stack))
    assert (code, json.loads(said)["problem"]) == (503, "no status yet")
    assert stack.ask_page("/", token_of(stack))[0] == 200
    assert token_of(stack) not in stack.run("logs", "page", "page-init")


def token_of(stack: Stack) -> str:
    return (stack.lake / "_protolake" / "page" / "token").read_text().strip()


def test_every_record_is_where_it_belongs_after_a_bump(stack: Stack) -> None:
    stack.run("up", "-d", "--wait", "kafka", "registry", "spark")
    assert stack.status()["state"] == "running"
    assert "gold.interval_s = 2.5\n" in stack.run("exec", "-T", "spark", "protolake", "settings")
    produce(stack, RECORDS, version=1, mixed=1)
    produce(stack, 2 * RECORDS, version=3, mixed=2)
    # Wanted: the second producer's versions 2 and 3 are both new, and cost one relaunch together.
    assert stack.status()["bumps"] == 1
    assert stack.run("logs", "--no-log-prefix", "spark").count("exit_code=75") == 1
    assert stack.container("spark")["RestartCount"] == 1

    records = read_topic(stack.brokers)
    assert len(records) == 2 * RECORDS
    assert read_bronze(stack) == records
    rows = [row for game in GAMES for row in read_silver(stack, game)]
    assert sorted(identity(row) for row in rows) == sorted(records)
    check_columns(rows)
    check_shell(stack)


def test_the_page_stays_open_through_a_bump(stack: Stack, opened: Callable[..., Page]) -> None:
    """After the records of the test before, in a browser that somebody has left open."""
    with contextlib.ExitStack() as visits:
        tab = opened(SimpleNamespace(url=stack.page, token=token_of(stack), visits=visits))
        expect(tab.get_by_test_id("state")).to_have_text("running")
        expect(tab.get_by_test_id("rows in bronze")).to_have_text(f"{2 * RECORDS:,}")
        produce(stack, 3 * RECORDS, version=4, mixed=1)
        assert stack.status()["bumps"] == 2
        expect(tab.get_by_test_id("rows in bronze")).to_have_text(f"{3 * RECORDS:,}")
        expect(tab.get_by_test_id("state")).to_have_text("running")
        tab.goto(f"{stack.page}/runs")
        expect(tab.get_by_role("cell", name="bump", exact=True)).to_have_count(2, timeout=60_000)
        tab.goto(f"{stack.page}/tables/silver_uno_events")
        expect(tab.get_by_role("cell", name="col_custom_3", exact=True).first).to_be_visible(timeout=30_000)


WRITABLE = """
import os
folders = [os.path.join(at, name) for at, below, _ in os.walk("/lake") for name in below]
print(*sorted(folder for folder in ["/lake", *folders] if os.access(folder, os.W_OK)))
"""


def test_the_page_is_up_without_the_app_and_writes_to_its_own_folders_only(stack: Stack) -> None:
    """After the app of the test before has filled the lake."""
    token = token_of(stack)
    assert [stack.ask_page("/health")[0], stack.ask_page("/health", "x" * 43)[0]] == [401, 401]
    assert stack.ask_page("/health", token)[0] == 200
    own = "/lake/_protolake/page /lake/_protolake/requests /lake/_protolake/spool/page"
    assert stack.run("exec", "-T", "page", "python", "-c", WRITABLE).strip() == own
    stack.run("stop", "spark")
    code, said = stack.ask_page("/health", token)
    assert (code, json.loads(said)["state"]) == (503, "stopped")
    assert stack.ask_page("/", token)[0] == 200
    assert 'protolake_rows_total{layer="silver",table="uno"}' in stack.ask_page("/metrics", token)[1]
    told = stack.run("exec", "-T", "page", "sh", "-c", "protolake status || true")
    assert f"page        {stack.page}/ (token: /lake/_protolake/page/token)\n" in told
    assert stack.container("page")["State"]["Health"]["Status"] == "healthy"
    assert stack.container("page")["RestartCount"] == 0


def produce(stack: Stack, total: int, version: int, mixed: int) -> None:
    """Send RECORDS records with the `mixed` newest versions; back when the app has ingested `total` in all."""
    stack.run(
        "up",
        "-d",
        "producer",
        PRODUCER_RECORDS=str(RECORDS),
        PRODUCER_RATE="0",
        PRODUCER_SCHEMA_VERSION=str(version),
        PRODUCER_NUM_VERSIONS=str(mixed),
    )
    stack.wait(f"{total} rows in silver", lambda status: rows_of(status, "silver") == total)


def rows_of(status: dict, layer: str) -> int:
    return sum(table[layer] for table in status.get("tables", {}).values())


def read_topic(brokers: str) -> dict[Identity, bytes]:
    """Every record that the host's listener gives, by its coordinates."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "e2e", "isolation.level": "read_committed"})
    try:
        found = {}
        for partition in consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)
            consumer.assign([TopicPartition(TOPIC, partition, low)])
            for message in consumer.consume(high - low, timeout=60):
                found[(TOPIC, partition, message.offset())] = message.value()
        return found
    finally:
        consumer.close()


def read_bronze(stack: Stack) -> dict[Identity, bytes]:
    """Values by coordinates; a record that is there twice is an error."""
    table = DeltaTable(stack.lake / "bronze_events").to_pyarrow_table(columns=["topic", "partition", "offset", "value"])
    rows = table.to_pylist()
    found = {(row["topic"], row["partition"], row["offset"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def read_silver(stack: Stack, game: str) -> list[dict]:
    rows = DeltaTable(stack.lake / f"silver_{game}_events").to_pyarrow_table().to_pylist()
    assert {row["game_name"] for row in rows} == {game}
    return rows


def identity(row: dict) -> Identity:
    topic, partition, offset = (row[name] for name in COORDINATES)
    return topic, partition, offset


def check_columns(rows: list[dict]) -> None:
    """A column is NULL in rows of versions without it, and filled by those that have it."""
    first, second, third = sorted({row["_schema_id"] for row in rows})
    filled = {
        column: {row["_schema_id"] for row in rows if row[column] is not None}
        for column in ("col_custom_1", "col_custom_2")
    }
    assert filled == {"col_custom_1": {second, third}, "col_custom_2": {third}}
    assert sum(row["_schema_id"] == first for row in rows) == RECORDS


def check_shell(stack: Stack) -> None:
    """The shell reads the new column, and cannot write to the lake."""
    answer = stack.run(
        "run",
        "--rm",
        "-T",
        "shell",
        stdin="print('rows', spark.table('silver_uno_events').where('col_custom_2 is not null').count())\n"
        "import os; print('writable', os.access('/lake', os.W_OK))\n",
    )
    uno = [row for row in read_silver(stack, "uno") if row["col_custom_2"] is not None]
    assert f"rows {len(uno)}" in answer
    assert "writable False" in answer
