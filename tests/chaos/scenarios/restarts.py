"""Permanent errors under the container's restart policy: the app is held or waits, does not loop, and becomes
unhealthy."""

from __future__ import annotations

import os
import signal
import time
from random import Random

from scripts.local.kafka import Kafka
from spark_app.units.driver.status import problem
from tests.chaos.flow import flowing
from tests.chaos.lab import Lab
from tests.chaos.outcome import Outcome
from tests.chaos.scenarios import Size
from tests.chaos.stage import Stage, kill

SAMPLE_S = 60.0
HOUR_S = 3600.0
LOG_BYTES = 1 << 20  # per hour
UNHEALTHY_S = 120.0  # a minute of quiet, and a busy machine
NOBODY = "127.0.0.1:1"
KINDS = {
    "bad_setting": {"KAFKA__TOPIC": " "},
    "missing_topic": {"KAFKA__TOPIC": "there_is_no_such_topic", "RUN__CONNECT_TIMEOUT_S": "5"},
    "bad_login": {
        "KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KAFKA__SASL_USERNAME": "nobody",
        "KAFKA__SASL_PASSWORD_FILE": "/dev/null",
        "RUN__CONNECT_TIMEOUT_S": "5",
    },
    "dead_registry": {"REGISTRY__URL": f"http://{NOBODY}"},
    "dead_broker": {"KAFKA__BROKERS": NOBODY},
}


def run(lab: Lab, size: Size, dice: Random) -> Outcome:
    """Each kind for a minute, from the start; then a broker that stops answering a healthy app."""
    faults: dict[str, object] = {}
    figures: dict[str, float | int] = {}
    for name, settings in KINDS.items():
        stage = lab.stage(RUN__HOLD="true", RUN__BACKOFF_S="5", **settings)
        starts, bytes_an_hour, healthy = _sample(stage)
        figures |= {f"{name}_starts": starts, f"{name}_log_bytes_an_hour": bytes_an_hour}
        if starts > 1 or bytes_an_hour > LOG_BYTES or healthy:
            faults[name] = {"starts": starts, "log bytes an hour": bytes_an_hour, "healthy": healthy}
    figures["unhealthy_after_s"] = seconds = _notices(lab, size.records)
    if seconds > UNHEALTHY_S:
        faults["unhealthy"] = seconds
    return Outcome(len(KINDS) + 1, faults, figures)


def _sample(stage: Stage) -> tuple[int, int, bool]:
    """Starts within the minute, log bytes per hour at the rate of its second half, and True if the app reported itself
    healthy."""
    began, starts, healthy, app, half = time.monotonic(), 0, False, None, 0
    try:
        while time.monotonic() - began < SAMPLE_S:
            if app is None or app.poll() is not None:
                time.sleep(0.1)  # as Docker restarts a container that ran for ten seconds
                app = stage.start()
                starts += 1
            healthy = healthy or (bool(stage.status()) and problem(stage.status()) is None)
            if not half and time.monotonic() - began > SAMPLE_S / 2:
                half = stage.log.stat().st_size
            time.sleep(0.2)
    finally:
        if app is not None:
            kill(app)
    return starts, int((stage.log.stat().st_size - half) * 2 / SAMPLE_S * HOUR_S), healthy


def _notices(lab: Lab, records: int) -> float:
    """Seconds from the broker's stop until the app reports a problem."""
    with Kafka(lab.folder / "broker-that-stops") as kafka:
        folder = lab.folder / "notices"
        folder.mkdir()
        stage = Stage(folder, kafka, lab.registry, "notices")
        stage.produce(records, partitions="3")
        with flowing(stage):
            assert kafka.pid is not None
            os.kill(kafka.pid, signal.SIGSTOP)
            began = time.monotonic()
            while problem(stage.status()) is None and time.monotonic() - began < 2 * UNHEALTHY_S:
                time.sleep(0.2)
            seconds = time.monotonic() - began
            os.kill(kafka.pid, signal.SIGCONT)
        return seconds
