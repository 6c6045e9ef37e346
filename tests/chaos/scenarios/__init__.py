"""The scenarios of ./scripts/chaos: their functions, and their repetitions per tier. Standard library only.

A scenario is a function of a module beside this file: `run(lab, size, dice) -> Outcome`.
"""

from __future__ import annotations

from dataclasses import dataclass

TIERS = ("nightly", "release")


@dataclass(frozen=True)
class Size:
    """The size of a scenario.

    Attributes:
        times: repetitions of its fault.
        records: if the scenario uses that number.
    """

    times: int
    records: int


@dataclass(frozen=True)
class Entry:
    """One scenario.

    Attributes:
        function: "module.function" in `tests.chaos.scenarios`.
        row: of the fault matrix.
        times: tier -> repetitions; 0 = not in this tier.
        storage: where its lakes are; "" = anywhere.
    """

    function: str
    row: str
    about: str
    times: dict[str, int]
    records: dict[str, int]
    storage: str = ""

    def size(self, tier: str, times: int = 0, records: int = 0) -> Size:
        """The size in a tier. A given number of repetitions, or of records, takes the place of the tier's."""
        return Size(times or self.times[tier], records or self.records[tier])


def _entry(
    function: str,
    row: str,
    about: str,
    times: tuple[int, int],
    records: tuple[int, int] = (0, 0),
    storage: str = "",
) -> Entry:
    often, many = (dict(zip(TIERS, numbers, strict=True)) for numbers in (times, records))
    return Entry(function, row, about, often, many, storage)


ANCHORS = {  # row of the fault matrix -> the behaviour, test or known problem of an established system
    "R1": "Kafka's transactions_test: 100,000 records, 6 bounces of a client",
    "R2": "RisingWave's simulation: kill_rate up to 1.0",
    "R3": "Delta: ConcurrentTransactionException",
    "R4": "Delta: a second attempt with other data is ignored",
    "R5": "Delta: after a lost checkpoint writes are skipped silently",
    "R6": "Spark 4.2: refuses each start",
    "R7": "Redpanda's chaos suite: 26 kinds of faults",
    "R8": "Confluent's client: 3 retries",
    "R9": "Hudi: a silent jump to the earliest offset",
    "R10": "Redpanda: tests of transactions and compaction gaps",
    "R11": "Redpanda: test of the disk budget",
    "R12": "LazyFS, VLDB 2024",
    "R13": "Jepsen: strobing clocks",
    "R14": "Redpanda: OOM at 100,000 rows",
    "R15": "Jepsen: pauses",
    "R16": "Docker: a PID 1 that ignores SIGTERM",
    "R17": "Docker: restarts from every 100 ms to every minute",
    "R21": "two writers of a local Delta log lose commits, silently",
    "R22": "Delta: the second write of a table in a batch is dropped",
    "R24": "Redpanda: 1,000 topics",
    "R25": "Databricks: ON VIOLATION FAIL UPDATE stops the flow",
}
SMALL, LARGE = 200_000, 5_000_000
ENTRIES = {
    "failpoints": _entry(
        "failpoints.run",
        "R2",
        "process death before and after every durable step of normal operation",
        (1, 10),
        (SMALL // 2, LARGE // 10),
    ),
    "failpoints_of_recovery": _entry(
        "failpoints.recover",
        "R2",
        "the same for records decoded late, replayed and rebuilt",
        (1, 10),
        (SMALL // 2, LARGE // 10),
    ),
    "growth": _entry("growth.run", "R24", "growth over many micro-batches of 20 records", (600, 10_000)),
    "rules": _entry(
        "failpoints.change_rules",
        "R4",
        "process death between two commits, then other rules",
        (10, 50),
        (30_000, 150_000),
    ),
    "merges": _entry(
        "failpoints.merge_again", "R22", "process death around the merges into gold", (10, 25), (60_000, 150_000)
    ),
    "power": _entry("power.run", "R12", "power cuts under the whole app", (4, 25), (50_000, SMALL)),
    "power_of_commits": _entry("power.commits", "R12", "power cuts at any operation of the commits", (100, 1_000)),
    "kills": _entry(
        "kills.run",
        "R1",
        "kill -9 at random moments: all, the driver or the JVM",
        (12, 200),
        (SMALL, LARGE),
    ),
    "expectations": _entry(
        "expectations.run",
        "R1",
        "kill -9 at random moments while rules warn, drop, quarantine and pause",
        (8, 200),
        (SMALL // 2, LARGE),
    ),
    "checkpoint": _entry(
        "checkpoint.swapped", "R5", "checkpoint deleted, older or another lake's; tables deleted", (3, 10)
    ),
    "damage": _entry(
        "checkpoint.damaged", "R6", "a file of the checkpoint truncated, emptied, junk or missing", (20, 30)
    ),
    "relaunch": _entry(
        "locks.relaunched",
        "R3",
        "the driver killed alone and relaunched at once; a second app at the same time",
        (5, 25),
    ),
    "intruders": _entry("locks.second", "R21", "commands that write while the app runs", (3, 10)),
    "offsets": _entry("offsets.run", "R9", "records expired, topic recreated smaller or larger", (1, 5)),
    "broker": _entry(
        "broker.run", "R7", "the broker killed, stopped, cut off, slow, noisy", (12, 25), (150_000, 400_000)
    ),
    "workers": _entry("memory.kill_workers", "R14", "kill -9 of Python workers", (20, 50), (100_000, 100_000)),
    "memory": _entry("memory.exhaust", "R14", "no memory for JVM or workers", (6, 15), (100_000, 100_000)),
    "pauses": _entry("pauses.pause", "R15", "SIGSTOP for a while", (4, 25), (60_000, 300_000)),
    "paused_table": _entry(
        "paused_table.run", "R25", "one table paused by a rule for ten minutes", (1, 1), (60_000, 300_000)
    ),
    "paused_schema": _entry(
        "paused_schema.run",
        "R25",
        "kill -9 while records come in that waited for a decision about their schema",
        (4, 10),
        (20_000, 100_000),
    ),
    "takeovers": _entry(
        "takeovers.run",
        "R15",
        "an app that is stopped at a failpoint while another machine takes its lake over",
        (6, 60),
        storage="s3",
    ),
    "stalls": _entry("pauses.stall", "R15", "SIGSTOP for good: the watchdog", (2, 10), (50_000, 50_000)),
    "stops": _entry("stops.run", "R16", "SIGTERM in every phase", (5, 50), (10_000, 50_000)),
    "disks": _entry("disks.run", "R11", "full disks, and disks without inodes", (5, 10), (50_000, 100_000)),
    "registry": _entry("registry.run", "R8", "outages of the registry", (3, 10), (3_000, 3_000)),
    "partitions": _entry("topics.partitions", "R10", "partitions that are added", (1, 5), (20_000, 100_000)),
    "transactions": _entry(
        "topics.transactions", "R10", "transactions aborted and left open", (1, 5), (20_000, 100_000)
    ),
    "compaction": _entry("topics.compaction", "R10", "compacted topics", (1, 5), (20_000, 100_000)),
    "clocks": _entry("clocks.run", "R13", "clocks that jump", (4, 10), (150_000, 400_000)),
    "restarts": _entry("restarts.run", "R17", "starts that cannot succeed, restarted", (1, 1), (50_000, 50_000)),
}
