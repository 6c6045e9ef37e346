"""Chooses how many records a unit from bronze has. After failures the number shrinks tenfold, down to one, so that a
record that crashes the job is isolated and the others succeed."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from spark_app.lake.files.disk import is_full
from spark_app.lake.files.state_files import read_json, write_quickly
from spark_app.lake.files.storage import Storage
from spark_app.model.errors import last_message_line
from spark_app.model.log import log
from spark_app.model.reports import Report
from spark_app.units.spark.cluster import cause_of

MOST_AT_ONCE = 200_000


class SizeBackoff:
    """The record limit. It is stored in the file `key` before each attempt, because the attempt may crash the app."""

    def __init__(self, storage: Storage, key: str, tries: int):
        self._storage = storage
        self._key = key
        self._most_tries = tries
        self._limit = MOST_AT_ONCE
        self._first = ""

    def limit(self, first: str = "") -> int:
        """The number of records for the next attempt. 0: the next record alone has failed too often; quarantine it.

        Args:
            first: identifies the next record, if it may differ from the first record of the failed attempt.
        """
        stored = read_json(self._storage, self._key) or {"limit": MOST_AT_ONCE, "tries": 0}
        same = stored.get("first", "") == first
        self._limit, self._tries, self._first = int(stored["limit"]), int(stored["tries"]) if same else 0, first
        if self._tries >= self._most_tries:
            self._limit, self._tries = (0 if self._limit <= 1 else max(1, self._limit // 10)), 0
        return self._limit

    def run(self, run: Callable[[], Report]) -> Report | None:
        """Run the job over as many records as `limit` returned; None if it failed."""
        self._note(self._limit, self._tries + 1)
        try:
            return run()
        except ConnectionError:
            raise  # the JVM is gone
        except (PySparkException, Py4JJavaError, OSError) as error:
            if is_full(error):
                self._note(self._limit, self._tries)
                raise
            if (cause := cause_of(error)) is not None:
                self._note(self._limit, self._tries)
                raise cause from None
            log.error(
                "the pass over bronze failed, trying fewer records",
                records=self._limit,
                reason=last_message_line(error),
            )
            return None

    def succeeded(self) -> None:
        """Call after the records are committed."""
        self._note(min(MOST_AT_ONCE, max(self._limit, 1) * 10), 0)

    def _note(self, limit: int, tries: int) -> None:
        value = {"limit": limit, "tries": tries, "first": self._first}
        write_quickly(self._storage, self._key, value, "attempt", owned=True)
