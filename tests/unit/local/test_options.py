"""The command line of ./scripts/run and what producer and app are told because of it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from scripts.local import environment, java
from scripts.local.acceptance import accept_loss
from scripts.local.artifacts import ROOT
from scripts.local.errors import CONFIGURATION, USAGE, LocalError
from scripts.local.options import parse
from spark_app.settings.storing import LakeSettings

OWN = ["--brokers", "kafka:9092", "--registry", "http://registry:8081"]


def test_the_defaults_are_the_embedded_stack_with_its_producer() -> None:
    options = parse([])
    assert options.is_embedded
    assert options.producer
    assert (options.lake, options.state) == (str(ROOT / "lake"), ROOT / "local")
    assert (options.kafka_port, options.registry_port) == (9092, 8081)


def test_the_page_is_there_unless_it_is_not_wanted() -> None:
    assert (parse([]).page, parse([]).page_port) == (True, None)
    assert (parse(["--page-port", "0"]).page, parse(["--page-port", "0"]).page_port) == (True, 0)
    assert parse(["--page-port", "8086"]).page_port == 8086


def test_a_cluster_has_as_many_workers_as_given() -> None:
    assert (parse([]).cluster, parse(["--cluster", "3"]).cluster) == (0, 3)
    with pytest.raises(LocalError, match="not a number above 0"):
        parse(["--cluster", "0"])
    assert not parse(["--no-page"]).page


def test_own_servers_come_without_the_producer_unless_chosen() -> None:
    assert not parse(OWN).is_embedded
    assert not parse(OWN).producer
    assert parse([*OWN, "--producer"]).producer


def test_a_settings_file_may_name_the_servers(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[kafka]\nbrokers = "k:1"\ntopic = "t"\n[registry]\nurl = "http://r"\n')
    options = parse(["--settings", str(file)])
    assert (options.brokers, options.registry, options.topic) == ("k:1", "http://r", "t")


def test_a_settings_file_may_name_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[lake]\npath = "orders"\n')
    assert parse(["--settings", str(file)]).lake == str(Path.cwd() / "orders")
    assert parse(["--settings", str(file), "--lake", "mine"]).lake == str(Path.cwd() / "mine")
    monkeypatch.setenv("PROTOLAKE_LAKE__PATH", "/lakes/other")
    assert parse(["--settings", str(file)]).lake == "/lakes/other"


def test_a_settings_file_without_servers_goes_with_the_embedded_ones(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[batch]\ninterval_s = 2\n")
    assert parse(["--settings", str(file)]).is_embedded


def test_a_source_of_files_needs_a_registry_and_no_brokers(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    source = '[source]\nkind = "files"\npath = "/data"\nname = "plays"\n'
    file.write_text(source + '[registry]\nurl = "http://r"\n[kafka]\nbrokers = "k:1"\n')
    options = parse(["--settings", str(file)])
    assert (options.brokers, options.registry) == (None, "http://r")
    assert (options.is_embedded, options.producer, options.demo) == (False, False, False)
    assert parse(["--settings", str(file), "--registry", "http://other"]).registry == "http://other"
    for unused in (["--brokers", "k:1"], ["--topic", "t"], ["--producer"], ["--records", "5"]):
        with pytest.raises(LocalError, match=f"{unused[0]} is for a topic of Kafka, and the source is files"):
            parse(["--settings", str(file), *unused])
    file.write_text(source)
    with pytest.raises(LocalError, match=r"needs the registry .* give --registry, or registry\.url") as caught:
        parse(["--settings", str(file)])
    assert caught.value.code == USAGE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--brokers", "k:1"], "--registry"),
        (["--registry", "http://r"], "--brokers"),
        (["--records", "0"], "above 0"),
        (["--records", "5", "--no-producer"], "--producer"),
        (["--kafka-port", "70000"], "not a port"),
        (["--page-port", "65536"], "--page-port: '65536' is not a port"),
        (["--nonsense"], "--nonsense"),
        (["--kafka-port", "9000", "--registry-port", "9000"], "both 9000"),
        (["--brokers", "k:1", "--registry", "localhost:8081"], "--registry.*such as http://localhost:8081"),
        (["--registry", "localhost:8081"], "--registry.*such as http://localhost:8081"),
        (["--registry", ""], "--registry.*such as http://localhost:8081"),
        (["--registry", "http://"], "--registry.*names no host"),
        (["--registry", "http://r:port"], "--registry.*wrong host or port"),
        (["--registry", "http://r:80810"], "--registry.*wrong host or port"),
        (["--registry", "http://r s"], "--registry.*a space"),
        (["--registry", "https://me:secret@r"], "--registry.*a settings file"),
        (["--brokers", "localhost"], "--brokers: 'localhost' is not HOST:PORT, such as localhost:9092"),
        (["--brokers", ""], "--brokers: '' is not HOST:PORT"),
        (["--brokers", "k:1, l"], "--brokers: 'l' is not"),
        (["--brokers", "http://k:1"], "--brokers: 'http://k:1' is not"),
        (["--brokers", "k:99999"], "--brokers: 'k:99999' is not"),
        (["--topic", "my topic"], "--topic: 'my topic' is not a topic name"),
        (["--topic", ""], "--topic: '' is not a topic name"),
        (["--lake", "a|b"], "--lake a.b"),
        (["--lake", ""], "--lake: the name of the folder is empty"),
        (["--state", " "], "--state: the name of the folder is empty"),
        (["--lake", "a", "--state", "./a"], "--lake and --state are both a"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(arguments: list[str], says: str) -> None:
    with pytest.raises(LocalError, match=says) as caught:
        parse(arguments)
    assert caught.value.code == USAGE
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("brokers", "registry"),
    [("a:1,b-2.c_d:65535, [::1]:9092", "https://r:8081/path"), ("127.0.0.1:9092", "http://[::1]:8081")],
)
def test_addresses_of_own_servers_are_accepted(brokers: str, registry: str) -> None:
    options = parse(["--brokers", brokers, "--registry", registry, "--topic", "orders, other.topic-2_x"])
    assert (options.brokers, options.registry) == (brokers, registry)


def test_the_command_ends_with_64_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.local", "--registry", "localhost:8081", "--state", str(tmp_path / "s")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    refusal = "the address must begin with http:// or https://; give one such as http://localhost:8081"
    assert (done.returncode, done.stderr) == (USAGE, f"run: --registry: {refusal}\n")
    assert not (tmp_path / "s").exists()


def test_help_needs_nothing_but_python() -> None:
    command = [sys.executable, "-S", "-m", "scripts.local", "--help"]  # -S: no installed package can be imported
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--fresh" in done.stdout


def test_the_embedded_registry_gets_the_level_that_lets_schemas_grow() -> None:
    told = environment.for_producer(parse([]), {}, "b", "r")
    assert told["PRODUCER_COMPATIBILITY"] == "BACKWARD_TRANSITIVE"
    assert int(told["PRODUCER_RETENTION_BYTES"]) * 4 == 1 << 30
    assert "PRODUCER_COMPATIBILITY" not in environment.for_producer(parse(OWN), {}, "b", "r")


def test_the_users_variables_beat_the_stacks_but_not_the_options() -> None:
    user = {
        "PRODUCER_RETENTION_HOURS": "1",
        "PRODUCER_PARTITIONS": "8",
        "PRODUCER_BROKERS": "x",
        "PRODUCER_RECORDS": "9",
    }
    told = environment.for_producer(parse(["--records", "5"]), user, "b", "r")
    assert told["PRODUCER_RETENTION_HOURS"] == "1"
    assert int(told["PRODUCER_RETENTION_BYTES"]) * 8 == 1 << 30
    assert (told["PRODUCER_BROKERS"], told["PRODUCER_RECORDS"]) == ("b", "5")


def test_a_second_run_changes_what_differs_and_no_address() -> None:
    running = {"PRODUCER_SCHEMA_VERSION": "1", "PRODUCER_RATE": "50", "PRODUCER_BROKERS": "b"}
    user = {"PRODUCER_SCHEMA_VERSION": "3", "PRODUCER_RATE": "50", "PRODUCER_BROKERS": "other", "PATH": "/bin"}
    assert environment.changes(running, user) == {"PRODUCER_SCHEMA_VERSION": "3"}


def test_no_proxy_stands_between_the_programs() -> None:
    assert environment.shared({"NO_PROXY": "example.org"})["NO_PROXY"] == "example.org,127.0.0.1,localhost"


def test_a_loss_is_only_accepted_beside_a_stack(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no stack runs") as caught:
        accept_loss(parse(["--accept-loss", "--state", str(tmp_path)]))
    assert caught.value.code == USAGE


def test_ports_of_servers_that_are_not_started_may_be_the_same() -> None:
    assert parse([*OWN, "--kafka-port", "9000", "--registry-port", "9000"]).brokers


@pytest.mark.parametrize("path", ["lake", "[lake]", "a{b", "a}b", "a|b", "a^b", "a\\b", "a b", "a*b"])
def test_a_lake_is_refused_where_the_app_would_refuse_it(path: str) -> None:
    def accepts(ask: Callable[[], object]) -> bool:
        try:
            ask()
        except (LocalError, ValidationError):
            return False
        return True

    assert accepts(lambda: parse(["--lake", path])) == accepts(lambda: LakeSettings(path=path))


@pytest.mark.parametrize("option", ["--lake", "--state"])
def test_a_file_is_no_address_of_a_lake(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=f"{option} .*/file is not a folder"):
        parse([option, str(tmp_path / "file")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[kafka]\ntopic = 3", "kafka.topic: "),
        ("[kafka]\ntopick = 'x'", "kafka.topick: no such setting; did you mean kafka.topic?"),
        ("[batch]\nmax_records = 'many'", "batch.max_records: "),
        ("kafka = 3", "kafka"),
    ],
)
def test_settings_that_the_app_would_refuse_are_refused_before_anything_starts(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(LocalError, match=re.escape(words)) as refusal:
        parse(["--settings", str(file)])
    assert refusal.value.code == CONFIGURATION


def variables(*arguments: str, **user: str) -> tuple[str | None, str | None]:
    """The settings file of the app, and what the producer plants."""
    options = parse(arguments)
    app = environment.for_app(options, java.find(), ROOT, "b", "r")
    return app.get("PROTOLAKE_SETTINGS"), environment.for_producer(options, user, "b", "r").get("PRODUCER_PLANT")


def test_the_demo_has_expectations_and_records_that_break_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    demo, mine = str(ROOT / "scripts" / "local" / "demo.toml"), tmp_path / "mine.toml"
    mine.touch()
    assert variables() == (demo, environment.PLANTS)
    assert variables(PRODUCER_PLANT="") == (demo, "")
    for own in (OWN, [*OWN, "--producer"], ["--no-producer"], ["--settings", str(mine)]):
        assert variables(*own) == (None, None)
    monkeypatch.setenv("PROTOLAKE_SETTINGS", str(mine))
    assert variables() == (None, None)
