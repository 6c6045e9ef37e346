"""The metrics of the alerts themselves, for a Prometheus that watches the watcher."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spark_app.page.alerts.book import Book


class AlertCollector(Collector):
    def __init__(self, book: Book):
        self._book = book

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("protolake_alert_firing", "1 while an alert fires", labels=["rule"])
        for name, state in self._book.states().items():
            states.add_metric([name], float(state.state == "firing"))
        yield states
        unsent = len(self._book.waiting())
        yield GaugeMetricFamily("protolake_alerts_unsent", "transitions of alerts that wait to be sent", value=unsent)
