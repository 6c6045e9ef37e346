"""The result of an audit as text."""

from __future__ import annotations

from spark_app.audit.verdict import KINDS, Verdict

MOST_SHOWN = 10


def verdict_lines(verdict: Verdict) -> list[str]:
    """A line per table, the notes, the first discrepancies of each kind, then the totals."""
    lines = [f"{'table':<36}{'rows':>14}" + "".join(f"{kind:>11}" for kind in KINDS)]
    for table in sorted({*verdict.rows, *(table for _, table in verdict.counts)}):
        counts = "".join(f"{verdict.counts[kind, table]:>11,}" for kind in KINDS)
        lines.append(f"{table:<36}{verdict.rows.get(table, 0):>14,}{counts}")
    lines += ["", *(f"not proven: {count:,} {words}" for words, count in sorted(verdict.notes.items()))]
    for kind, wrongs in verdict.named.items():
        lines += [f"{kind}, the first ones:"]
        lines += [f"  {w.table}  {w.what}{': ' + w.why if w.why else ''}" for w in wrongs[:MOST_SHOWN]]
    lines += [f"{verdict.left:,} offsets were not ingested yet"] if verdict.left else []
    speed = f"{verdict.records / max(verdict.seconds, 0.001):,.0f} records/s"
    lines.append(f"{verdict.records:,} records up to unit {verdict.upto} audited in {verdict.seconds:.1f} s ({speed})")
    return [*lines, "clean" if verdict.clean else "NOT CLEAN"]
