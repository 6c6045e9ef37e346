"""The command line of ./scripts/run. It imports only the standard library, because `--help` must work before anything
is installed."""

import argparse
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scripts.local import lakes
from scripts.local.arguments import Parser
from scripts.local.artifacts import ROOT
from scripts.local.errors import USAGE, LocalError
from spark_app.model.address import StorageAddress

if TYPE_CHECKING:
    from spark_app.settings.models import Settings

TOPIC = "protobuf_game_stream"
DEMO = ROOT / "scripts" / "local" / "demo.toml"  # the rules of the demo
SETTINGS_VARIABLE = "PROTOLAKE_SETTINGS"
LAKE_VARIABLE = "PROTOLAKE_LAKE__PATH"
ABOUT = """\
Runs Kafka, a schema registry, the demo producer and the Spark app on this machine, supervised, until Ctrl-C.

With --brokers and --registry (or a settings file that names both) it uses your own servers and starts none.
With a source of files (source.kind in the settings) it starts only the app and the page; the registry is your own.
With --lake s3://BUCKET/PREFIX the lake is in a bucket of the store that the settings name (store.endpoint, store.region
or store.credentials_file). If they name none, an object store is started too, with its data in ./local/objects.
PRODUCER_* and PROTOLAKE_* variables are passed to the producer and the app. While a stack runs, a second
`PRODUCER_SCHEMA_VERSION=3 ./scripts/run` restarts its producer with the new variables: a schema bump."""
NO_LAKE = re.compile(r"[\[\]{}|^\\]")  # the rule of the app's lake.path
BROKER_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Za-z:.%]+\]")  # a name, an IPv4 address, or [IPv6]
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
CODES = "Exit codes: 0 stopped or drained, 64 usage, 65 loss, 69 something unreachable, 78 configuration."


@dataclass(frozen=True)
class Options:
    """The command line options. `brokers` and `registry` are None for the embedded servers, and `brokers` also for a
    source of files. `demo`: the app has the rules of the demo, and the producer breaks them. `page_port`: None = that
    of the settings. `starts_store`: the lake is in a bucket of a store that the stack starts. `cluster`: workers of a
    Spark cluster that runs the executors. `serve`: a PostgreSQL is started that follows the lake."""

    address: StorageAddress
    state: Path
    kafka_port: int
    registry_port: int
    topic: str | None
    brokers: str | None
    registry: str | None
    settings: Path | None
    producer: bool
    records: int | None
    fresh: bool
    yes: bool
    accept_loss: bool = False
    demo: bool = False
    page: bool = True
    page_port: int | None = None
    object_store_port: int = 8333
    starts_store: bool = False
    cluster: int = 0
    serve: bool = False
    postgres_port: int = 5432

    @property
    def lake(self) -> str:
        """The folder of the lake, or its address."""
        return self.address.root

    @property
    def is_embedded(self) -> bool:
        return self.registry is None


def parse(arguments: Sequence[str]) -> Options:
    """The options, checked against each other; a LocalError names what is missing."""
    given = _parser().parse_args(arguments)
    _check_addresses(given.brokers, given.registry, given.topic)
    named, settings = _read_settings(given.settings)
    lake = given.lake or lake_of(named, os.environ)
    starts_store = lake.startswith("s3://") and not lakes.names_store(settings.store)
    address = _address(lake, given, settings, starts_store)
    brokers, registry = _servers(given, named, settings)
    _check_ports(given, registry is None, starts_store)
    if given.serve and settings.serve.dsn_file:
        raise LocalError("--serve starts a PostgreSQL, and serve.dsn_file names another one: leave one out", USAGE)
    producer = given.producer if given.producer is not None else registry is None
    if given.records and not producer:
        raise LocalError("--records needs the producer: add --producer, or leave out --no-producer", USAGE)
    return Options(
        address=address,
        state=given.state.absolute(),
        kafka_port=given.kafka_port,
        registry_port=given.registry_port,
        topic=given.topic or named.get("kafka", {}).get("topic"),
        brokers=brokers,
        registry=registry,
        settings=given.settings and given.settings.absolute(),
        producer=producer,
        records=given.records,
        fresh=given.fresh,
        accept_loss=given.accept_loss,
        demo=producer and not (registry or given.settings or os.environ.get(SETTINGS_VARIABLE)),
        yes=given.yes,
        page=given.page,
        page_port=given.page_port,
        object_store_port=given.object_store_port,
        starts_store=starts_store,
        cluster=given.cluster,
        serve=given.serve,
        postgres_port=given.postgres_port,
    )


def _servers(
    given: argparse.Namespace, named: Mapping[str, Any], settings: "Settings"
) -> tuple[str | None, str | None]:
    """The addresses of the user's own brokers and registry; both None for the embedded servers."""
    brokers = given.brokers or named.get("kafka", {}).get("brokers")
    registry = given.registry or named.get("registry", {}).get("url")
    if settings.source.kind == "files":
        return None, _registry_of_files(given, registry)
    if bool(brokers) != bool(registry):
        missing, key = ("--registry", "registry.url") if brokers else ("--brokers", "kafka.brokers")
        raise LocalError(f"your own servers need both addresses: give {missing}, or {key} in a settings file", USAGE)
    return brokers, registry


def _registry_of_files(given: argparse.Namespace, registry: str | None) -> str:
    """The registry's address, if nothing that is given concerns Kafka."""
    for name in ("brokers", "topic", "producer", "records"):
        if getattr(given, name):
            raise LocalError(
                f"--{name} is for a topic of Kafka, and the source is files: leave it out (source.kind)", USAGE
            )
    if not registry:
        raise LocalError(
            "a source of files needs the registry that has its schemas: give --registry, or registry.url in a settings"
            " file",
            USAGE,
        )
    return registry


def lake_of(named: Mapping[str, Any], user: Mapping[str, str], noted: str = "") -> str:
    """The lake where no --lake is given: that of the environment, of the settings file, of the stack that was started
    last, or of this clone."""
    return os.fspath(user.get(LAKE_VARIABLE) or named.get("lake", {}).get("path") or noted or str(ROOT / "lake"))


def _address(lake: str, given: argparse.Namespace, settings: "Settings", starts_store: bool) -> StorageAddress:
    """Where the lake is, checked."""
    state = given.state.absolute()
    _check_folder("--state", state)
    if not lakes.is_address(lake):
        _check_lake(Path(lake), given.state)
        return StorageAddress(str(Path(lake).absolute()))
    if given.fresh:
        lakes.refuse_fresh(lake)
    lakes.check_address(lake)
    address = lake.rstrip("/")
    if starts_store:
        return lakes.started_address(address, state, given.object_store_port)
    return lakes.own_address(address, settings)


def _check_ports(given: argparse.Namespace, is_embedded: bool, starts_store: bool) -> None:
    names = [*(("kafka", "registry") if is_embedded else ()), *(("object-store",) if starts_store else ())]
    names += ["postgres"] if given.serve else []
    ports: dict[int, str] = {}
    for name in names:
        port = getattr(given, f"{name.replace('-', '_')}_port")
        if port in ports:
            raise LocalError(f"--{ports[port]}-port and --{name}-port are both {port}: give each its own port", USAGE)
        ports[port] = name


def _check_folder(name: str, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise LocalError(f"{name} {folder} is not a folder", USAGE)


def _check_lake(lake: Path, state: Path) -> None:
    _check_folder("--lake", lake)
    if NO_LAKE.search(str(lake)):
        raise LocalError(rf"--lake {lake}: the path of a lake must not contain any of []{{}}|^\ in it", USAGE)
    if lake.resolve() == state.resolve():
        raise LocalError(f"--lake and --state are both {lake}: give each its own folder", USAGE)


def _check_addresses(brokers: str | None, registry: str | None, topic: str | None) -> None:
    """Check what producer and app would reject only after the servers have started. An address of a registry is not
    repeated in the message: it may contain a password."""
    for broker in () if brokers is None else brokers.split(","):
        if not _is_broker(broker.strip()):
            raise LocalError(f"--brokers: {broker.strip()!r} is not HOST:PORT, such as localhost:9092", USAGE)
    problem = None if registry is None else _problem_of(registry)
    if problem:
        raise LocalError(f"--registry: the address {problem}; give one such as http://localhost:8081", USAGE)
    for name in () if topic is None else topic.split(","):
        if not TOPIC_NAME.fullmatch(name.strip()) or name.strip() in (".", ".."):
            raise LocalError(
                f"--topic: {name.strip()!r} is not a topic name: 1 to 249 of A-Z a-z 0-9 . _ -, such as {TOPIC}", USAGE
            )


def _is_broker(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(BROKER_HOST.fullmatch(host)) and port.isdecimal() and 0 < int(port) < 65536


def _problem_of(registry: str) -> str | None:
    """Why the text is not the address of a registry; None if it is one. The rules are those of `registry.url`."""
    try:
        found = urlsplit(registry)
        host, _ = found.hostname, found.port
    except ValueError:
        return "has a wrong host or port"
    if found.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not host or re.search(r"\s", registry):
        return "names no host" if not host else "has a space"
    if "@" in found.netloc or "?" in registry or "#" in registry:
        return "has a user, a password or a query, which belong in a settings file"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="./scripts/run", description=ABOUT, epilog=CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--lake",
        type=_lake,
        metavar="DIR",
        help="folder or s3://BUCKET/PREFIX (default: the file's lake.path, or ./lake)",
    )
    add("--state", type=_folder, default=ROOT / "local", metavar="DIR", help="server data and logs (default: ./local)")
    add("--fresh", action="store_true", help="move the old lake and state aside to lake.<time> first")
    add("--yes", action="store_true", help="do not ask before --fresh moves them")
    add("--accept-loss", action="store_true", help="for a held app: skip the records that Kafka lost, once")
    add("--records", type=_positive, metavar="N", help="produce N records, wait until all are in the lake, then stop")
    add("--kafka-port", type=_port, default=9092, metavar="PORT", help="port of the embedded broker (default: 9092)")
    add("--registry-port", type=_port, default=8081, metavar="PORT", help="port of the local registry (default: 8081)")
    add(
        "--object-store-port",
        type=_port,
        default=8333,
        metavar="PORT",
        help="port of the object store that is started for a lake in a bucket (default: 8333)",
    )
    add(
        "--cluster",
        type=_positive,
        default=0,
        metavar="N",
        help="run the app's executors in a Spark cluster of N workers with one core each, which is started too",
    )
    add("--serve", action="store_true", help="start a PostgreSQL, too, that follows the lake: for BI tools")
    add("--postgres-port", type=_port, default=5432, metavar="PORT", help="port of that server (default: 5432)")
    add("--brokers", metavar="HOST:PORT", help="your own brokers, comma-separated")
    add("--registry", metavar="URL", help="your own registry (Confluent's API)")
    add("--topic", metavar="NAME", help=f"topic to read (default: {TOPIC})")
    add("--settings", type=Path, metavar="FILE", help="settings of the Spark app (TOML)")
    add(
        "--producer",
        action=argparse.BooleanOptionalAction,
        help="run the demo producer (default: with the embedded servers only)",
    )
    add("--page-port", type=_page_port, metavar="PORT", help="port of the page, 0 = a free one (default: 8085)")
    add("--no-page", action="store_false", dest="page", help="run no page about the lake")
    return parser


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def _lake(text: str) -> str:
    return text if lakes.is_address(text) else str(_folder(text))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 1 to 65535")
    return int(text)


def _page_port(text: str) -> int:
    return 0 if text == "0" else _port(text)


def _read_settings(path: Path | None) -> "tuple[dict[str, Any], Settings]":
    """The content of the settings file, and the settings in force. The file and the app's variables are checked now,
    because the app would reject them only after everything else has started."""
    try:
        named = tomllib.loads(path.read_text()) if path else {}
    except OSError as error:
        raise LocalError(f"--settings {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LocalError(f"--settings {path} is not TOML: {error}") from None
    from spark_app.model.errors import ConfigurationError
    from spark_app.settings import config

    try:
        return named, config.load(path)
    except ConfigurationError as error:
        raise LocalError(str(error)) from None
