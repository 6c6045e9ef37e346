"""The metrics of a lake for Prometheus: their names, and which of the tables get series of their own.

A thousand tables would be thousands of series. So the busiest tables have their own, and all others are one series with
the label "other". The choice stays while the process runs: a table that left "other" would look like a counter that
began anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from spark_app import __version__
from spark_app.page.alerts.book import Book
from spark_app.page.connections import BoundedProtocol
from spark_app.page.metrics.reading import STATES, Reading

MOST_TABLES = 200
MOST_EXPECTATIONS = 200
MOST_NAMES = 60  # of causes, followers, sinks and reference tables
OTHER = "other"

Value = Callable[[Reading], float | None]
GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("up", "1 if the app runs and its status is fresh, else 0", lambda r: r.is_up),
    ("healthy", "1 if the app is healthy, as of `protolake status --healthy`", lambda r: r.problem is None),
    ("status_age_seconds", "seconds since the app wrote its status", lambda r: r.status_age_s),
    ("lag_records", "records in Kafka that are not in bronze yet", lambda r: r.number("lag")),
    ("newest_row_age_seconds", "from produced to visible, of the newest row", lambda r: r.age_s),
    ("newest_row_timestamp_seconds", "when the newest visible row was produced", lambda r: r.newest_at),
    ("deferred_records", "records in bronze that wait to be decoded", lambda r: r.number("deferred")),
    ("dropped_records", "records that expectations keep out of all tables", lambda r: r.number("dropped")),
    ("waiting_files", "listed files of a source that are not yet ingested", lambda r: r.number("source", "waiting")),
    ("broken_files", "files of a source that cannot be ingested", lambda r: r.number("source", "broken")),
    ("executors", "executors of the cluster that the app has", lambda r: r.number("executors", "now")),
    ("wanted_executors", "executors that the load needs", lambda r: r.number("executors", "wanted")),
    ("blocked_offsets", "offsets behind open transactions", lambda r: _sum(r, "held_back")),
    ("progress_age_seconds", "seconds without any sign of progress", lambda r: r.number("quiet_s")),
    ("last_unit_seconds", "duration of the last unit of Kafka's records", lambda r: r.number("batch", "seconds")),
    ("last_unit_records", "records of the last unit", lambda r: r.number("batch", "records")),
    ("last_unit_timestamp_seconds", "when the last unit became visible", lambda r: r.last_unit_at),
    ("gold_failed_tables", "gold tables that are behind silver after a failure", lambda r: _len(r, "gold_failed")),
    ("paused_tables", "tables whose rows wait for a decision", lambda r: _len(r, "paused")),
    ("tables", "silver tables", lambda r: _len(r, "tables")),
    ("schema_warnings", "warnings about versions of schemas", lambda r: r.number("schema_warnings", "count")),
    ("lake_free_bytes", "free bytes on the disk of the lake", lambda r: r.free),
)
COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("records", "records in bronze", lambda r: r.number("bronze")),
    ("taken_files", "ingested files of a source", lambda r: r.number("source", "taken")),
    ("units", "number of the newest committed unit", lambda r: r.units),
    ("starts", "starts of the app", lambda r: r.number("starts")),
    ("bumps", "starts that a new schema caused", lambda r: r.number("bumps")),
    ("lost_offsets", "offsets that were accepted as lost", lambda r: r.number("lost", "offsets")),
)


def _sum(reading: Reading, key: str) -> float | None:
    return sum(reading.counts(key).values()) if reading.has(key) else None


def _len(reading: Reading, key: str) -> float | None:
    return len(reading.objects(key)) if reading.has(key) else None


def _is_text(name: str) -> bool:
    """Whether UTF-8 has the name; JSON may have halves of characters."""
    return name.encode(errors="replace").decode() == name


class Named:
    """The names that have series of their own. Once chosen, a name stays."""

    def __init__(self, most: int):
        self._most = most
        self._names: set[str] = set()

    def choose(self, values: Mapping[str, float]) -> None:
        """Give the remaining series to the names that have the largest values."""
        new = [name for name in values if name not in self._names and name != OTHER and _is_text(name)]
        new.sort(key=lambda name: (-values[name], name))
        self._names.update(new[: self._most - len(self._names)])

    def split(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values of the chosen names, and the sum of all others under "other"."""
        own = {name: value for name, value in values.items() if name in self._names}
        rest = [value for name, value in values.items() if name not in own]
        return own | ({OTHER: sum(rest)} if rest else {})


class LakeCollector(Collector):
    """Collects the metrics of one lake at each scrape."""

    def __init__(self, read: Callable[[], Reading], identity: Callable[[], str]):
        """`identity` is the id of the lake, which a new lake gets from its app."""
        self._read = read
        self._identity = identity
        self._tables = Named(MOST_TABLES)
        self._expectations = Named(MOST_EXPECTATIONS)
        self._others: dict[str, Named] = {}

    def collect(self) -> Iterator[Metric]:
        reading = self._read()
        lake = {"lake": self._identity()}
        yield InfoMetricFamily("protolake", "the lake and the release of the page", lake | RELEASE)
        now = reading.state
        states = {state: state == now for state in STATES}
        yield StateSetMetricFamily("protolake_state", "what the app does; dead = gone without a word", states)
        for kind, metrics in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for name, text, value_of in metrics:
                value = value_of(reading)
                if value is not None:
                    yield kind(f"protolake_{name}", text, value=float(value))
        yield from self._of_tables(reading)
        yield self._of_expectations(reading)
        yield self._of(reading.counts("quarantine"), "quarantine_open_records", "records in quarantine", "cause")
        quarantined = reading.counts("quarantined")
        yield self._of(quarantined, "quarantined_records", "records that went to quarantine", "cause", counts=True)
        yield self._of(reading.each("followers", "lag"), "follower_lag_units", "units behind", "follower")
        yield self._of(reading.each("sinks", "waiting"), "sink_waiting_rows", "rows that wait for their call", "sink")
        rejected = reading.each("sinks", "rejected")
        yield self._of(rejected, "sink_rejected_rows", "rows that a target has refused", "sink", counts=True)
        yield self._of(reading.each("references", "rows"), "reference_rows", "rows of reference tables", "reference")

    def _of_tables(self, reading: Reading) -> Iterator[Metric]:
        silver = reading.each("tables", "silver")
        self._tables.choose(silver)
        rows = CounterMetricFamily("protolake_rows", "rows of tables", labels=["layer", "table"])
        for table, value in self._tables.split(silver).items():
            rows.add_metric(["silver", table], value)
        yield rows
        gold = GaugeMetricFamily("protolake_gold_rows", "rows of gold tables, one per key", labels=["table"])
        for table, value in self._tables.split(reading.each("tables", "gold")).items():
            gold.add_metric([table], value)
        yield gold
        more = GaugeMetricFamily("protolake_gold_table_rows", "rows of the tables of gold.tables", labels=["table"])
        for table, value in reading.counts("gold_rows").items():
            more.add_metric([table], value)
        yield more
        paused = GaugeMetricFamily("protolake_paused_rows", "rows that wait in paused tables", labels=["table"])
        for table, value in self._tables.split(reading.each("paused", "rows")).items():
            paused.add_metric([table], value)
        yield paused

    def _of_expectations(self, reading: Reading) -> Metric:
        outcomes = {
            "passed": {name: counts[0] for name, counts in reading.expectations.items()},
            "failed": {name: counts[1] for name, counts in reading.expectations.items()},
        }
        self._expectations.choose(outcomes["failed"])
        text = "rows that an expectation was checked on"
        rows = CounterMetricFamily("protolake_rule_rows", text, labels=["rule", "outcome"])
        for outcome, values in outcomes.items():
            for name, value in self._expectations.split(values).items():
                rows.add_metric([name, outcome], value)
        return rows

    def _of(self, values: Mapping[str, float], name: str, text: str, label: str, counts: bool = False) -> Metric:
        named = self._others.setdefault(name, Named(MOST_NAMES))
        named.choose(values)
        kind = CounterMetricFamily if counts else GaugeMetricFamily
        family = kind(f"protolake_{name}", text, labels=[label])
        for key, value in named.split(values).items():
            family.add_metric([key], value)
        return family


RELEASE = {"version": __version__}


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """A registry with these collectors and without those of the Python process."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry


class PageCollector(Collector):
    """The metrics of alerts and connections themselves, for a Prometheus that watches the watcher."""

    def __init__(self, book: Book):
        self._book = book

    def collect(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("protolake_alert_firing", "1 while an alert fires", labels=["rule"])
        for name, state in self._book.states().items():
            states.add_metric([name], float(state.state == "firing"))
        yield states
        unsent = len(self._book.waiting())
        yield GaugeMetricFamily("protolake_alerts_unsent", "transitions of alerts that wait to be sent", value=unsent)
        closed = "connections of the page that were closed because no request came"
        yield CounterMetricFamily("protolake_page_closed_connections", closed, value=BoundedProtocol.closed)
