"""Alerts of the real app: bad records, and an app that is killed while the receiver is down."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen

import pytest

from scripts.local.ports import free_port
from spark_app.lake.lake import Lake
from spark_app.page.alerts.delivery import LONGEST_S
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.pages import page
from tests.support.receivers import Receiver

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
RULES = """
[alerts]
webhook = "{address}"
[alerts.rules.bad_records]
when = "quarantine_rate > 0.01"
[alerts.rules.gone]
when = "state = 'dead'"
level = "ERROR"
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(free_port())
    made.up()
    yield made
    made.down()


@contextmanager
def watched(stage: Stage, receiver: Receiver) -> Iterator[tuple[Stage, list[Popen[bytes]]]]:
    """An app with 2,000 records and a page that knows its share of bad ones; all apps of the list are killed at the
    end."""
    stage.produce(2_000, partitions="2")
    apps = [stage.start()]
    try:
        wait_until(lambda: stage.status().get("bronze", 0) == 2_000, "the first records")
        with page(Lake(stage.lake), RULES.format(address=receiver.url)):
            time.sleep(35)  # the share of bad records is one of the last minute, and known after half of it
            assert told(receiver) == []
            yield stage, apps
    finally:
        for app in apps:
            kill(app)


@pytest.mark.nightly
def test_bad_records_and_a_killed_app_are_reported(new_stage: Callable[..., Stage], receiver: Receiver) -> None:
    with watched(new_stage(BATCH__INTERVAL_S="0.5"), receiver) as (stage, apps):
        stage.produce(3_000, poison="0.05", seed="8")
        wait_until(lambda: ("bad_records", "firing") in told(receiver), "the alert")
        receiver.down()
        os.kill(apps[0].pid, signal.SIGKILL)
        time.sleep(45)  # a status counts for 30 s
        before = told(receiver)
        receiver.up()
        wait_until(lambda: ("gone", "firing") in told(receiver), "the alert about the app", 120)
        apps.append(stage.start())
        wait_until(lambda: ("gone", "resolved") in told(receiver), "its end", 120)
        assert ("gone", "firing") not in before
        assert max(receiver.counts().values()) == 1


@pytest.mark.nightly
def test_what_a_receiver_missed_in_five_minutes_it_gets_within_one(
    new_stage: Callable[..., Stage], receiver: Receiver
) -> None:
    with watched(new_stage(BATCH__INTERVAL_S="0.5"), receiver) as (stage, apps):
        receiver.down()
        stage.produce(3_000, poison="0.05", seed="8")
        time.sleep(60)
        os.kill(apps[0].pid, signal.SIGKILL)
        time.sleep(300)
        assert told(receiver) == []
        receiver.up()
        expected = [("bad_records", "firing"), ("bad_records", "resolved"), ("gone", "firing")]
        wait_until(lambda: sorted(told(receiver)) == sorted(expected), "all that it missed", LONGEST_S + 10)
        assert max(receiver.counts().values()) == 1


def told(receiver: Receiver) -> list[tuple[str, str]]:
    """(rule, state) of what the receiver has taken."""
    return [(body["rule"], body["state"]) for _, body in receiver.received]
