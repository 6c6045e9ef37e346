"""Checks that the object store of a lake keeps two processes from writing it at the same time."""

from __future__ import annotations

from spark_app.lake.delta.findings import Finding
from spark_app.lake.lake import Lake

REMEDY = "Stop the app, and copy the lake to a store that keeps If-None-Match and If-Match of requests at one moment"


def examine(lake: Lake) -> list[Finding]:
    """Race clients of the store, with small objects that are removed again. A local disk has a lock instead."""
    if lake.storage.is_local:
        return []
    from spark_app.lake.files.store_race import race  # loads the library of object stores

    try:
        faults = race(lake.place, lake.trial("race"))
    except PermissionError as error:
        what = f"whether the object store keeps conditional writes could not be tried: {error.strerror}"
        return [Finding(what, "Run doctor with keys that may write and delete", fatal=False)]
    what = f"the object store of {lake.address} lets two processes write one lake: {faults[0]}" if faults else ""
    return [Finding(what, REMEDY)] if faults else []
