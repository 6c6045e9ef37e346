"""Measures seconds per batch into few and into many silver tables: the cost must not grow with the number of tables.

Each number of tables has its own lake, with `--storage s3` two (`buckets`). A batch is the app's whole work for one:
the Spark job (over records cached in Spark, so that no source is measured), the manifest, the commits. Compaction after
a batch is given separately, as a mean of all batches, because few batches have one; gold is not measured. The sizes
take turns in one run, so that other work on the machine affects them equally.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from scripts.benches import buckets, frames, result
from scripts.benches.cases import STEPS, WARMING, Case
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import Workshop, open_workshop
from scripts.benches.targets import BATCH, Target


def run(options: Options) -> Result:
    """Measure and print."""
    if options.storage == "s3":
        return buckets.run(options)
    with open_workshop() as workshop:
        cases = [_prepare(workshop, tables, options) for tables in options.tables]
        _measure(cases, options.batches)
        _show(cases)
        print(f"medians of {options.batches} batches of {options.records:,} records")
        found = [case.found() | {"most_files": case.most_files()} for case in cases]
        details = {"records": options.records, "partitions": options.partitions, "cases": found}
        return Result(list(_figures(cases)), details)


def _prepare(workshop: Workshop, tables: int, options: Options) -> Case:
    result.log_progress(f"preparing {options.records:,} records for {tables} tables ...")
    records = workshop.records(frames.play(tables), options.records, options.partitions)
    return Case(tables, options.records, records, workshop.stand(tables))


def _measure(cases: list[Case], batches: int) -> None:
    for number in range(WARMING + batches):
        for case in cases:
            case.measure(number >= WARMING)
        result.log_progress(f"batch {number + 1} of {WARMING + batches}: " + ", ".join(_brief(case) for case in cases))


def _brief(case: Case) -> str:
    return f"{case.tables} tables {sum(case.seconds[-1]):.2f} s" if case.seconds else f"{case.tables} tables warming up"


def _show(cases: list[Case]) -> None:
    first = cases[0]
    result.show(
        ["tables", "files", "s/batch", *STEPS, f"ratio to {first.tables}", "CPU s", "ratio", "compacting", "files now"],
        [case.row(first) for case in cases],
    )


def _figures(cases: list[Case]) -> Iterator[Figure]:
    first = cases[0]
    yield Figure.of(f"seconds of a batch, {first.tables:,} tables", first.totals())
    for case in cases:
        yield Figure(f"seconds of compaction per batch (mean), {case.tables:,} tables", fmean(case.compaction))
        yield Figure(f"files of a table at the end, at most, {case.tables:,} tables", case.most_files())
    for case in cases[1:]:
        what = f"seconds of a batch, {case.tables:,} tables / {first.tables:,}"
        ratios = (one / of_first for one, of_first in zip(case.totals(), first.totals(), strict=True))
        yield Figure.of(what, ratios, _target(case.tables, first.tables))


def _target(tables: int, first: int) -> Target | None:
    return next((target for most, target in BATCH.items() if first == 7 and tables <= most), None)
