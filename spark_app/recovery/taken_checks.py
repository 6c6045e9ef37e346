"""Compares the ledger of taken files with the manifests."""

from __future__ import annotations

from spark_app.lake.delta.findings import Finding
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.files.state_files import read_durable
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.sources.files.taken import REMEDY, TakenFiles, files_of

MOST_LOOKS = 3  # at the ledger, whose segments a running app may merge meanwhile


def examine(lake: Lake) -> list[Finding]:
    """Segments that are damaged or missing, and where a Delta table began. A lake of topics has none."""
    found = list[Finding]()
    for _ in range(MOST_LOOKS):
        try:
            _check(lake, Manifests(lake))
            return []
        except ContractError as error:
            found = [Finding(error.what, f"{REMEDY[0].upper()}{REMEDY[1:]}")]
    return found


def _check(lake: Lake, manifests: Manifests) -> None:
    """
    Raises:
        ContractError: a start of the app would refuse the ledger.
    """
    last = manifests.last_ingest
    if last is None or "files" not in last.source:
        return
    read_durable(lake.storage, f"{lake.taken}/began.json")
    ledger = TakenFiles(lake.storage, lake.taken, tidy=False)
    open_units = (manifests.read(number) for number in manifests.numbers() if number > ledger.unit)
    later = [file for unit in open_units if unit.kind == "ingest" for file in files_of(unit.source)]
    ((end,),) = (numbers.values() for numbers in last.source["end"].values())
    ledger.check(int(end), later)
