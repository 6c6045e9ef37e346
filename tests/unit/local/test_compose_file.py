"""What docker-compose.yml tells the app, with and without a settings file."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path, PurePosixPath

import pytest

from scripts.local.artifacts import ROOT
from spark_app.lake.files.object_clients import read_credentials
from spark_app.lake.lake import Lake
from spark_app.page.alerts.book import WRITER

VARIABLE = re.compile(r"\$\{(\w+)(?::([-+])([^}]*))?\}")


def environment_of_app(**user: str) -> dict[str, str]:
    """The environment that the service `spark` lists, with the variables put in by Compose's rules."""
    text = (ROOT / "docker-compose.yml").read_text()
    block = re.search(r"^  spark:\n.*?^    environment:.*?\n((?:      - .*\n)+)", text, re.MULTILINE | re.DOTALL)
    assert block
    found = {}
    for line in block[1].splitlines():
        name, _, value = VARIABLE.sub(lambda one: _put_in(one, user), line.split(" #")[0].strip("- ")).partition("=")
        found[name] = value or user.get(name, "")
    return found


def _put_in(one: "re.Match[str]", user: dict[str, str]) -> str:
    name, operator, text = one.groups()
    if operator == "+":
        return str(text) if user.get(name) else ""
    return user.get(name) or text or ""


def test_without_a_settings_file_the_app_reads_the_producers_topic() -> None:
    assert environment_of_app()["PROTOLAKE_KAFKA__TOPIC"] == "protobuf_game_stream"
    assert environment_of_app(PRODUCER_TOPIC="mine")["PROTOLAKE_KAFKA__TOPIC"] == "mine"


@pytest.mark.parametrize("topic", [{}, {"PRODUCER_TOPIC": "demo"}])
def test_a_settings_file_names_the_topic(topic: dict[str, str]) -> None:
    told = environment_of_app(PROTOLAKE_SETTINGS_FILE="./mine.toml", PROTOLAKE_KAFKA__BROKERS="k:1", **topic)
    assert "PROTOLAKE_KAFKA__TOPIC" not in told
    assert told["PROTOLAKE_KAFKA__BROKERS"] == "k:1"
    assert told["PROTOLAKE_SETTINGS"] == "/protolake.toml"


def test_the_demo_has_expectations_and_a_lake_of_ones_own_has_none() -> None:
    assert environment_of_app()["PROTOLAKE_SETTINGS"] == "/demo.toml"
    for own in ({"PROTOLAKE_SETTINGS_FILE": "./mine.toml"}, {"PROTOLAKE_KAFKA__BROKERS": "k:1"}):
        assert environment_of_app(**own)["PROTOLAKE_SETTINGS"] == "/protolake.toml"
    text = (ROOT / "docker-compose.yml").read_text()
    assert "      - ./scripts/local/demo.toml:/demo.toml:ro,z\n" in text
    assert "    PRODUCER_PLANT:\n" in text


def block_of(service: str) -> str:
    text = (ROOT / "docker-compose.yml").read_text()
    found = re.search(rf"^  {service}:.*?\n(?=  \S|\S)", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def test_the_page_can_write_to_its_own_folders_of_the_lake_only() -> None:
    mounts = re.findall(r'- "\$\{LAKE_DIR:-\./lake\}(\S*):/lake(\S*?):(\S+)"', block_of("page"))
    assert ("", "", "ro,z") in mounts
    writable = {inside: how for outside, inside, how in mounts if outside == inside and how == "z"}
    assert set(writable) == {f"/{key}" for key in (Lake.page, Lake.requests, f"{Lake.spool}/{WRITER}")}
    assert len(mounts) == 4


def test_the_page_needs_neither_the_app_nor_its_servers() -> None:
    for service in ("page", "page-init"):
        waits_for = block_of(service).partition("depends_on:")[2]
        assert (
            re.findall(r"^      ([\w-]+):", waits_for, re.MULTILINE)
            == {
                "page": ["page-init", "bucket-init"],  # the latter in the profile of a cluster only
                "page-init": ["lake-init"],
            }[service]
        )
    assert "    restart: unless-stopped\n" in block_of("page")
    assert '    restart: "no"\n' in block_of("page-init")
    assert "page" not in block_of("spark").partition("depends_on:")[2]


def test_the_page_has_the_settings_of_the_app_and_an_address_that_browsers_reach() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert text.count("environment: &settings") == block_of("spark").count("environment: &settings") == 1
    assert "    environment: *settings\n" in block_of("page")
    assert environment_of_app()["PROTOLAKE_PAGE__PORT"] == "8085"
    assert environment_of_app(PAGE_PORT="9000")["PROTOLAKE_PAGE__PORT"] == "9000"
    assert '    ports: ["127.0.0.1:${PAGE_PORT:-8085}:${PAGE_PORT:-8085}"]\n' in block_of("page")
    files = re.findall(r":(/\S+\.toml):ro", block_of("page"))
    assert files == re.findall(r":(/\S+\.toml):ro", block_of("spark"))
    assert PurePosixPath(environment_of_app()["PROTOLAKE_SETTINGS"]) in map(PurePosixPath, files)


def test_the_page_has_neither_the_secret_of_a_cluster_nor_the_keys_of_its_administrator() -> None:
    assert "page-keys:/cluster:ro" in block_of("page")
    assert "cluster:/cluster" not in block_of("page").replace("page-keys:/cluster:ro", "")


def test_a_cluster_gets_its_secret_and_two_identities_of_its_store_once(tmp_path: Path) -> None:
    """By the command of cluster-init."""
    for name in ("cluster", "page-keys", "objects"):
        (tmp_path / name).mkdir()
    text = block_of("cluster-init").partition("      - |\n")[2].partition("    environment")[0]
    command = re.sub(r"/(cluster|page-keys|objects)\b", rf"{tmp_path}/\1", textwrap.dedent(text).replace("$$", "$"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    owner = os.environ | {"OWNER": f"{os.getuid()}:{os.getgid()}", "PATH": path}
    found = []
    for _ in range(2):
        subprocess.run(["sh", "-euc", command], env=owner, check=True)
        found.append({path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()})
    assert found[0] == found[1]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found[0]} == {0o600}
    names = {str(path.relative_to(tmp_path)) for path in found[0]}
    assert names == {"cluster/secret", "cluster/identities.json", "cluster/credentials", "page-keys/credentials"}
    identities = json.loads(found[0][tmp_path / "cluster/identities.json"])["identities"]
    for one, file in zip(identities, ("cluster/credentials", "page-keys/credentials"), strict=True):
        [keys], given = one["credentials"], read_credentials(str(tmp_path / file))
        assert list(given.values()) == [keys["accessKey"], keys["secretKey"]]
    assert [one["actions"] for one in identities] == [["Admin"], ["Read", "Write", "List", "Tagging"]]


def test_who_serves_people_has_one_core_at_most() -> None:
    assert "    cpus: 1\n" in block_of("page")
    assert "  cpus: ${SPARK_CPUS:-0}" in (ROOT / "docker-compose.yml").read_text()


def test_a_slow_start_is_no_fault_and_a_refused_version_ends_the_producer() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert set(re.findall(r"start_period: (\w+)", text)) == {"300s"}
    assert re.search(r"^x-producer:.*\n  <<: \*service\n  restart: on-failure:10 ", text, re.MULTILINE)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="only root can give up its rights")
@pytest.mark.parametrize("case", ["new", "of another user", "filled", "closed"])
def test_an_empty_lake_is_given_to_the_user_of_the_app(tmp_path: Path, case: str) -> None:
    """By the command of lake-init, with the rights that it has."""
    lake = tmp_path / "lake"
    lake.mkdir()
    if case == "filled":
        (lake / "a").touch()
    if case != "new":
        os.chown(lake, 4711, 4711)
    lake.chmod(0o700 if case == "closed" else 0o755)
    [command] = re.findall(r"^      - '(found=.*)'$", block_of("lake-init"), re.MULTILINE)
    given = command.replace("$$", "$").replace("/lake", str(lake))
    rights = ["setpriv", "--bounding-set", "-all,+chown", "sh", "-euc", given]
    done = subprocess.run(rights, env=os.environ | {"OWNER": "1000:1001"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    found = lake.stat()
    given_away = case in ("new", "of another user")
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (
        (1000, 0o750) if given_away else (4711, 0o700 if case == "closed" else 0o755)
    )
