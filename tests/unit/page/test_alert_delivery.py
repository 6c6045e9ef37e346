"""Alerts are told at least once and in order, whatever the receiver does and whenever the process is killed."""

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_app.followers.events import spool
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.page.alerts import delivery as deliveries
from spark_app.page.alerts.book import Book, Judged
from spark_app.page.alerts.delivery import Delivery, Receiver, pause_s
from spark_app.page.files import PageFiles
from spark_app.settings.watching import AlertRule, Alerts
from tests.support import receivers
from tests.support.receivers import receiving
from tests.support.secure import Authority
from tests.support.statuses import write_status

ROOT = Path(__file__).parents[3]
NOW = 1_000_000.0
LATE = {"late": AlertRule(when="age_s > 60")}
BOTH = LATE | {"other": AlertRule(when="lag > 0")}


@pytest.fixture
def book(lake: Lake) -> Book:
    files = PageFiles(lake)
    files.acquire()
    return Book(files, lambda: "lake-1", is_sent=True)


@pytest.fixture
def receiver() -> Iterator[receivers.Receiver]:
    with receiving() as made:
        yield made


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def turn(book: Book, number: int, rules: dict[str, AlertRule] = LATE, **holds: bool) -> None:
    book.judge(rules, {name: Judged(holds.get(name), {}) for name in rules}, NOW + number)


def until_told(book: Book, delivery: Delivery, clock: Clock) -> list[float]:
    """Let the time pass from attempt to attempt; returns the pauses."""
    pauses = []
    while book.waiting() and len(pauses) < 50:
        pauses.append(delivery.step(clock))
        clock.now += pauses[-1]
    return pauses


KEYS = ["lake-1/late/1", "lake-1/late/2"]


def test_an_alert_is_sent_with_its_key_and_then_its_end(book: Book, receiver: receivers.Receiver) -> None:
    turn(book, 0, late=True)
    turn(book, 5, late=False)
    until_told(book, Delivery(book, Receiver(Alerts(webhook=receiver.url)).post), Clock())
    assert [key for key, _ in receiver.received] == KEYS
    assert [body["state"] for _, body in receiver.received] == ["firing", "resolved"]
    assert receiver.received[0][1] == {
        "key": "lake-1/late/1",
        "at": "1970-01-12T13:46:40.000+00:00",
        "level": "WARNING",
        "message": "alert late fires: age_s > 60",
        "lake": "lake-1",
        "rule": "late",
        "number": 1,
        "state": "firing",
        "condition": "age_s > 60",
        "values": {},
        "description": "",
        "since": "1970-01-12T13:46:40.000+00:00",
        "severity": "warning",
    }


@pytest.mark.parametrize("way", [500, 503, 429, 404, 401, "reset", "late", "silent", "redirect"])
def test_what_was_not_accepted_is_sent_again_and_in_order(
    book: Book, receiver: receivers.Receiver, monkeypatch: pytest.MonkeyPatch, way: int | str
) -> None:
    if way in ("late", "silent"):
        monkeypatch.setattr(deliveries, "WITHIN_S", 0.2)
    receiver.ways = [way, way, 200, way]
    turn(book, 0, late=True)
    turn(book, 5, late=False)
    clock = Clock()
    until_told(book, Delivery(book, Receiver(Alerts(webhook=receiver.url)).post), clock)
    assert receiver.first_taken() == KEYS
    if way in ("late", "silent"):  # an answer in time may be late too, on a machine that has much else to do
        assert receiver.counts()[KEYS[0]] >= 3
    else:
        assert receiver.counts() == {KEYS[0]: 3, KEYS[1]: 2}
    assert set(receiver.paths) == {"/secret-path-of-the-hook"}


def test_an_endless_answer_is_cut_and_counts(book: Book, receiver: receivers.Receiver) -> None:
    receiver.ways = ["endless"]
    turn(book, 0, late=True)
    until_told(book, Delivery(book, Receiver(Alerts(webhook=receiver.url)).post), Clock())
    assert receiver.counts() == {KEYS[0]: 1}


def test_pauses_grow_up_to_one_minute() -> None:
    assert [pause_s(attempts) for attempts in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]


def test_a_receiver_that_is_down_for_five_minutes_gets_both_once_it_is_up(
    book: Book, receiver: receivers.Receiver
) -> None:
    receiver.down()
    delivery, clock = Delivery(book, Receiver(Alerts(webhook=receiver.url)).post), Clock()
    turn(book, 0, late=True)
    turn(book, 100, late=False)
    while clock.now < 300:
        clock.now += delivery.step(clock)
    receiver.up()
    attempts = until_told(book, delivery, clock)
    assert [key for key, _ in receiver.got] == KEYS
    assert clock.now < 600
    assert len(attempts) <= 3


def test_an_alert_that_is_refused_does_not_keep_back_another_one(book: Book, receiver: receivers.Receiver) -> None:
    receiver.ways = [400]
    turn(book, 0, BOTH, late=True, other=True)
    delivery = Delivery(book, Receiver(Alerts(webhook=receiver.url)).post)
    delivery.step(Clock())
    assert receiver.first_taken() == ["lake-1/other/1"]
    delivery.step(Clock())
    assert receiver.first_taken() == ["lake-1/other/1", "lake-1/late/1"]


@pytest.mark.parametrize(
    ("server", "authority", "taken"), [("server", True, 1), ("server", False, 0), ("expired", True, 0)]
)
def test_a_receiver_is_who_its_certificate_says(
    book: Book, receiver: receivers.Receiver, tmp_path: Path, server: str, authority: bool, taken: int
) -> None:
    own = Authority(tmp_path / "authority")
    receiver.down()
    receiver.certificate = own.server_file if server == "server" else own.expired_file
    receiver.up()
    settings = Alerts(webhook=receiver.url, ca_file=str(own.ca_file) if authority else "")
    turn(book, 0, late=True)
    Delivery(book, Receiver(settings).post).step(Clock())
    assert len(receiver.received) == taken
    with pytest.raises(ConfigurationError, match=r"^alerts.ca_file: /no/such cannot be used"):
        Receiver(Alerts(webhook=receiver.url, ca_file="/no/such"))


def test_slack_gets_text_that_cannot_link(book: Book, receiver: receivers.Receiver) -> None:
    rules = {"late": AlertRule(when="lag > 0 and state <> '<!channel>'")}
    turn(book, 0, rules, late=True)
    until_told(book, Delivery(book, Receiver(Alerts(webhook=receiver.url, format="slack")).post), Clock())
    text = ":rotating_light: alert late fires: lag &gt; 0 and state &lt;&gt; '&lt;!channel&gt;'"
    payload = {"event_type": "alert", "event_payload": {"key": KEYS[0]}}
    assert receiver.received[0][1] == {"text": text, "metadata": payload}


def test_alertmanager_hears_each_minute_which_alerts_fire(book: Book, receiver: receivers.Receiver) -> None:
    settings = Alerts(webhook=f"http://127.0.0.1:{receiver.port}/", format="alertmanager")
    delivery, clock = Delivery(book, Receiver(settings).post, repeats=True), Clock()
    turn(book, 0, late=True)
    for _ in range(4):
        clock.now += delivery.step(clock)
    assert receiver.counts() == {KEYS[0]: 4}
    turn(book, 9, late=False)
    for _ in range(3):
        clock.now += delivery.step(clock)
    assert receiver.counts() == {KEYS[0]: 4, KEYS[1]: 1}
    assert set(receiver.paths) == {"/api/v2/alerts"}
    labels = {"alertname": "late", "lake": "lake-1", "job": "protolake", "severity": "warning"}
    [fired], [resolved] = receiver.received[0][1], receiver.received[-1][1]
    assert fired["labels"] == resolved["labels"] == labels
    assert (fired["startsAt"], "endsAt" in fired) == ("1970-01-12T13:46:40.000+00:00", False)
    assert (resolved["startsAt"], resolved["endsAt"]) == (fired["startsAt"], "1970-01-12T13:46:49.000+00:00")


def test_alertmanager_hears_of_no_alert_that_ends_before_it_starts(book: Book, receiver: receivers.Receiver) -> None:
    """The clock is set back while the alert fires."""
    settings = Alerts(webhook=f"http://127.0.0.1:{receiver.port}/", format="alertmanager")
    turn(book, 0, late=True)
    turn(book, -60, late=False)
    until_told(book, Delivery(book, Receiver(settings).post), Clock())
    [fired], [resolved] = (body for _, body in receiver.received)
    assert fired["startsAt"] == "1970-01-12T13:46:40.000+00:00"
    assert resolved["startsAt"] == resolved["endsAt"] == "1970-01-12T13:45:40.000+00:00"


SECRET = "canary-7f3a"


def test_secrets_of_files_are_sent_and_never_logged(
    book: Book,
    receiver: receivers.Receiver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliveries, "WITHIN_S", 0.5)
    hook, token = tmp_path / "hook", tmp_path / "token"
    hook.write_text(f"{receiver.url}/{SECRET}\n")
    token.write_text(f"{SECRET}-token\n")
    settings = Alerts(webhook_file=str(hook), token_file=str(token))
    delivery, clock = Delivery(book, Receiver(settings).post), Clock()
    turn(book, 0, late=True)
    receiver.ways = [500, "redirect", "reset", "silent"]
    for _ in range(4):
        clock.now += delivery.step(clock)
    receiver.down()
    clock.now += delivery.step(clock)
    for text in (f"{SECRET} {SECRET}", f"ftp://{SECRET}", f"http://{SECRET}@host/", f"http://{SECRET}:99999/", ""):
        hook.write_text(text)
        clock.now += delivery.step(clock)
    hook.unlink()
    clock.now += delivery.step(clock)
    receiver.up()
    hook.write_text(f"{receiver.url}/{SECRET}\n")
    until_told(book, delivery, clock)
    assert receiver.headers[-1]["Authorization"] == f"Bearer {SECRET}-token"
    assert receiver.paths[-1].endswith(SECRET)
    said = capsys.readouterr()
    assert said.err.count("an alert could not be sent") >= 11
    assert SECRET not in said.err + said.out


def test_an_address_in_the_settings_is_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_app.settings import config

    for text in (f"http://u:{SECRET}@host", f"ftp://{SECRET}", f"https://host/?token={SECRET}"):
        monkeypatch.setenv("PROTOLAKE_ALERTS__WEBHOOK", text)
        with pytest.raises(ConfigurationError, match=r"^alerts.webhook: ") as caught:
            config.load()
        assert SECRET not in str(caught.value)
    monkeypatch.setenv("PROTOLAKE_ALERTS__WEBHOOK", f"https://{SECRET}.example")
    monkeypatch.setenv("PROTOLAKE_ALERTS__WEBHOOK_FILE", "/f")
    with pytest.raises(ConfigurationError, match=r"^alerts: .*set one$") as caught:
        config.load()
    assert SECRET not in str(caught.value)


class Page:
    """`protolake page` with alerts, which may be killed and started again."""

    def __init__(self, lake: Lake, alerts: str):
        self._lake = lake
        self._file = lake.root.parent / "page.toml"
        self._file.write_text(f"[page]\nport = 0\n{alerts}")
        self.said = ""

    @contextlib.contextmanager
    def run(self) -> Iterator["subprocess.Popen[str]"]:
        command = [sys.executable, "-m", "spark_app", "page", "--lake", str(self._lake.root), "--settings"]
        process = subprocess.Popen(
            [*command, str(self._file)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout
        try:
            yield process
        finally:
            process.kill()
            self.said += process.stdout.read()
            process.wait()
            process.stdout.close()


def wait_for(what: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_dead_app_is_reported_by_the_process_and_so_is_its_return(lake: Lake, receiver: receivers.Receiver) -> None:
    write_status(lake, at=time.time() - 3600)
    hook = lake.root.parent / "hook"
    hook.write_text(receiver.url)
    rules = "[alerts.rules.gone]\nwhen = \"state in ('dead', 'held')\"\nlevel = 'ERROR'\n"
    page = Page(lake, f"[alerts]\nwebhook_file = '{hook}'\n{rules}")
    with page.run():
        wait_for(lambda: receiver.received)
        write_status(lake, at=time.time())
        wait_for(lambda: len(receiver.received) == 2)
    assert [body["state"] for _, body in receiver.received] == ["firing", "resolved"]
    assert receiver.received[0][1]["severity"] == "critical"
    assert receiver.first_taken() == [f"{lake.identity()}/gone/{number}" for number in (1, 2)]
    assert "secret-path-of-the-hook" not in page.said


def test_kills_at_any_moment_neither_lose_nor_reorder_a_transition(lake: Lake, receiver: receivers.Receiver) -> None:
    dice = random.Random(7)
    write_status(lake, at=time.time(), deferred=0)
    page = Page(lake, f"[alerts]\nwebhook = '{receiver.url}'\n[alerts.rules.many]\nwhen = 'deferred > 10'\n")
    for _ in range(8):
        receiver.ways = [dice.choice([200, 500, "reset"]) for _ in range(4)]
        with page.run():
            end = time.monotonic() + dice.uniform(0.5, 4.0)
            while time.monotonic() < end:
                write_status(lake, at=time.time(), deferred=dice.choice([0, 20]))
                time.sleep(0.3)
    receiver.ways = []
    write_status(lake, at=time.time(), deferred=0)
    states = lake.root / lake.page / "alerts.json"
    with page.run():
        wait_for(lambda: states.exists() and not json.loads(states.read_text())["waiting"], 60)
        wait_for(lambda: json.loads(states.read_text())["states"]["many"]["state"] == "ok", 60)
        wait_for(lambda: not json.loads(states.read_text())["waiting"], 60)
    spooled = [row.id for row in spool.read(lake, "page", 0).values()]
    assert spooled == [f"{lake.identity()}/many/{number + 1}" for number in range(len(spooled))]
    assert len(spooled) % 2 == 0
    assert receiver.first_taken() == spooled
