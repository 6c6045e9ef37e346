"""What every kind of sink has to do, as one check for its own tests:

def test_it_is_a_sink(tmp_path):
    path = tmp_path / "rows.db"
    check(SqliteSink, {"path": str(path)}, lambda: rows_of(path))
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from spark_app.followers.sinks.sink import DELETE, OPERATION, UPSERT, Call, Outcome, Sink

TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
SCHEMA = pa.schema(
    [
        ("player", pa.string()),
        ("score", pa.int64()),
        ("large", pa.uint64()),
        ("bet", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("blob", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("home", pa.struct([("city", pa.string())])),
    ]
)
Rows = Sequence[Mapping[str, Any]]


def check(kind: Callable[[], Sink], options: Mapping[str, Any], read: Callable[[], Rows]) -> None:
    """Run a kind of sink through what `protolake deliver` does with it.

    Args:
        kind: makes a sink.
        read: gives the rows that the target has, with at least the columns `player` and `score`.

    Raises:
        AssertionError: says what it does wrong.
    """
    asyncio.run(_check(kind, options, read))


async def _check(kind: Callable[[], Sink], options: Mapping[str, Any], read: Callable[[], Rows]) -> None:
    sink = await _open(kind, options)
    assert isinstance(sink.can_replace, bool), "can_replace says whether it takes calls that replace a table"
    try:
        await _send(sink, _call("a", _row(player="Ann", score=1), _row(player="Zoë 'x'\n", score=2)))
        await _send(sink, _call("b", *(_row(player=f"p{number}", score=number) for number in range(1000))))
        await _send(sink, _call("c", dict.fromkeys(SCHEMA.names) | {"player": "nobody"}))
        first = _found(read())
        assert ("Zoë 'x'\n", 2) in first, "a text does not arrive as it was"
        assert ("nobody", None) in first, "a row whose other columns are NULL does not arrive"
        assert len(first) == 1003, f"1,003 rows were sent, and {len(first):,} are there"
    finally:
        await _close(sink)
    sink = await _open(kind, options)
    try:
        await _send(sink, _call("c", dict.fromkeys(SCHEMA.names) | {"player": "nobody"}, attempt=2))
        again = _found(read())
        assert set(again) == set(first), "a call that is repeated changes rows"
        await _send(sink, _call("d", _row(player="Ann", score=5, op=UPSERT), _row(player="p7", score=None, op=DELETE)))
        if sink.can_replace:
            await _send(sink, _call("e", _row(player="only", score=1, op=UPSERT), replaces=True))
            assert _found(read()) == [("only", 1)], "a call that replaces the table leaves other rows there"
    finally:
        await _close(sink)


def _row(player: str, score: int | None, op: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {
        "player": player,
        "score": score,
        "large": 2**64 - 1,
        "bet": decimal.Decimal("12.3400"),
        "at": TIME,
    }
    row |= {"blob": b"\x00\xff", "tags": ["a", None], "home": {"city": None}}
    return row | ({OPERATION: op} if op else {})


def _call(key: str, *rows: dict[str, Any], attempt: int = 1, replaces: bool = False) -> Call:
    is_change = OPERATION in rows[0]
    schema = SCHEMA.append(pa.field(OPERATION, pa.string())) if is_change else SCHEMA
    names = ("player",) if is_change and not replaces else ()
    return Call(key, "silver_uno_events", "uno", pa.Table.from_pylist(list(rows), schema), names, replaces, attempt)


async def _open(kind: Callable[[], Sink], options: Mapping[str, Any]) -> Sink:
    sink = kind()
    sink.open(options)
    return sink


async def _send(sink: Sink, call: Call) -> None:
    if inspect.iscoroutinefunction(sink.send):
        outcomes = await cast("Awaitable[Sequence[Outcome]]", sink.send([call]))
    else:
        outcomes = cast("Sequence[Outcome]", sink.send([call]))
    assert [one.key for one in outcomes] == [call.key], "there is one outcome for each call, with its key"
    assert outcomes[0].result == "accepted", f"the call {call.key} is not accepted: {outcomes[0]}"


async def _close(sink: Sink) -> None:
    if isinstance(closing := sink.close(), Awaitable):
        await closing


def _found(rows: Rows) -> list[tuple[Any, Any]]:
    return [(row["player"], row["score"]) for row in rows]
