"""Which records a unit from bronze takes after failures."""

from pathlib import Path

from pyspark.errors import PySparkException

from spark_app.lake.files.local import LocalStorage
from spark_app.model.reports import Report
from spark_app.units.driver.ingest import MOST_AT_ONCE, SizeBackoff


def fail() -> Report:
    raise PySparkException("a worker died")


def test_a_record_is_given_up_for_its_own_failures_only(tmp_path: Path) -> None:
    attempts = SizeBackoff(LocalStorage(tmp_path), "attempts.json", tries=2)
    limits = []
    while not limits or limits[-1] != 1:
        limits.append(attempts.limit("a"))
        assert attempts.run(fail) is None
    assert limits[:3] == [MOST_AT_ONCE, MOST_AT_ONCE, MOST_AT_ONCE // 10]
    assert attempts.limit("a") == 1
    attempts.run(fail)
    assert SizeBackoff(LocalStorage(tmp_path), "attempts.json", tries=2).limit("a") == 0
    assert SizeBackoff(LocalStorage(tmp_path), "attempts.json", tries=2).limit("another that comes first") == 1
