"""The scenarios of ./scripts/chaos: their functions, and their repetitions per tier. Standard library only.

A scenario is a function of a module beside this file: `run(lab, size, dice) -> Outcome`.
"""

from __future__ import annotations

from dataclasses import dataclass

TIERS = ("ci", "nightly", "release")


@dataclass(frozen=True)
class Size:
    """The size of a scenario.

    Attributes:
        times: repetitions of its fault.
        records: if the scenario uses that number.
        share: of the failpoints, drawn anew with each seed, if the scenario meets them one after another.
    """

    times: int
    records: int
    share: float = 1.0


@dataclass(frozen=True)
class Entry:
    """One scenario.

    Attributes:
        function: "module.function" in `tests.chaos.scenarios`.
        row: of the fault matrix.
        times: tier -> repetitions; 0 = not in this tier.
        storage: where its lakes are; "" = anywhere.
        share: of the failpoints in tier "ci"; the other tiers meet all.
    """

    function: str
    row: str
    about: str
    times: dict[str, int]
    records: dict[str, int]
    storage: str = ""
    share: float = 1.0

    def size(self, tier: str, times: int = 0, records: int = 0) -> Size:
        """The size in a tier. A given number of repetitions, or of records, takes the place of the tier's; whoever
        gives repetitions means whole ones."""
        share = self.share if tier == "ci" and not times else 1.0
        return Size(times or self.times[tier], records or self.records[tier], share)


def _entry(
    function: str,
    row: str,
    about: str,
    times: tuple[int, int, int],
    records: tuple[int, int, int] = (0, 0, 0),
    storage: str = "",
    share: float = 1.0,
) -> Entry:
    often, many = (dict(zip(TIERS, numbers, strict=True)) for numbers in (times, records))
    return Entry(function, row, about, often, many, storage, share)


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
        (1, 3, 10),
        (SMALL // 2, SMALL, LARGE // 10),
        share=0.2,
    ),
    "failpoints_of_recovery": _entry(
        "failpoints.recover",
        "R2",
        "the same for records decoded late, replayed and rebuilt",
        (1, 3, 10),
        (SMALL // 2, SMALL, LARGE // 10),
        share=0.2,
    ),
    "growth": _entry("growth.run", "R24", "growth over many micro-batches of 20 records", (0, 2_000, 10_000)),
    "rules": _entry(
        "failpoints.change_rules",
        "R4",
        "process death between two commits, then other rules",
        (0, 20, 50),
        (0, 60_000, 150_000),
    ),
    "merges": _entry(
        "failpoints.merge_again", "R22", "process death around the merges into gold", (0, 10, 25), (0, 60_000, 150_000)
    ),
    "power": _entry("power.run", "R12", "power cuts under the whole app", (2, 8, 25), (20_000, 100_000, SMALL)),
    "power_of_commits": _entry("power.commits", "R12", "power cuts at any operation of the commits", (20, 300, 1_000)),
    "kills": _entry(
        "kills.run",
        "R1",
        "kill -9 at random moments: all, the driver or the JVM",
        (4, 60, 200),
        (SMALL // 2, 1_000_000, LARGE),
    ),
    "expectations": _entry(
        "expectations.run",
        "R1",
        "kill -9 at random moments while rules warn, drop, quarantine and pause",
        (2, 60, 200),
        (SMALL * 3 // 20, 1_000_000, LARGE),
    ),
    "checkpoint": _entry(
        "checkpoint.swapped", "R5", "checkpoint deleted, older or another lake's; tables deleted", (0, 3, 10)
    ),
    "damage": _entry(
        "checkpoint.damaged", "R6", "a file of the checkpoint truncated, emptied, junk or missing", (0, 20, 30)
    ),
    "relaunch": _entry(
        "locks.relaunched",
        "R3",
        "the driver killed alone and relaunched at once; a second app at the same time",
        (0, 10, 25),
    ),
    "intruders": _entry("locks.second", "R21", "commands that write while the app runs", (0, 5, 10)),
    "offsets": _entry("offsets.run", "R9", "records expired, topic recreated smaller or larger", (0, 3, 5)),
    "broker": _entry(
        "broker.run", "R7", "the broker killed, stopped, cut off, slow, noisy", (0, 12, 25), (0, 150_000, 400_000)
    ),
    "workers": _entry("memory.kill_workers", "R14", "kill -9 of Python workers", (0, 20, 50), (0, 100_000, 100_000)),
    "memory": _entry("memory.exhaust", "R14", "no memory for JVM or workers", (0, 6, 15), (0, 100_000, 100_000)),
    "pauses": _entry("pauses.pause", "R15", "SIGSTOP for a while", (0, 10, 25), (0, 150_000, 300_000)),
    "paused_table": _entry(
        "paused_table.run", "R25", "one table paused by a rule for ten minutes", (0, 1, 1), (0, 60_000, 300_000)
    ),
    "paused_schema": _entry(
        "paused_schema.run",
        "R25",
        "kill -9 while records come in that waited for a decision about their schema",
        (0, 4, 10),
        (0, 20_000, 100_000),
    ),
    "takeovers": _entry(
        "takeovers.run",
        "R15",
        "an app that is stopped at a failpoint while another machine takes its lake over",
        (6, 60, 60),
        storage="s3",
    ),
    "stalls": _entry("pauses.stall", "R15", "SIGSTOP for good: the watchdog", (0, 4, 10), (0, 50_000, 50_000)),
    "stops": _entry("stops.run", "R16", "SIGTERM in every phase", (0, 10, 50), (0, 10_000, 50_000)),
    "disks": _entry("disks.run", "R11", "full disks, and disks without inodes", (0, 5, 10), (0, 50_000, 100_000)),
    "registry": _entry("registry.run", "R8", "outages of the registry", (0, 3, 10), (0, 3_000, 3_000)),
    "partitions": _entry("topics.partitions", "R10", "partitions that are added", (0, 1, 5), (0, 20_000, 100_000)),
    "transactions": _entry(
        "topics.transactions", "R10", "transactions aborted and left open", (0, 1, 5), (0, 20_000, 100_000)
    ),
    "compaction": _entry("topics.compaction", "R10", "compacted topics", (0, 1, 5), (0, 20_000, 100_000)),
    "clocks": _entry("clocks.run", "R13", "clocks that jump", (0, 4, 10), (0, 150_000, 400_000)),
    "restarts": _entry("restarts.run", "R17", "starts that cannot succeed, restarted", (0, 1, 1), (0, 50_000, 50_000)),
}
