"""Measures delivery to a REST service: rows per second and CPU of a call, beside the same client alone.

The service answers after a fixed time, in a process of its own. For each size the client alone, which posts bodies that
are ready, and a sink of the app send as many rows, in turn. The published table of a system that posts from Spark is
printed beside them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import truediv
from pathlib import Path
from statistics import median

import aiohttp

from scripts.benches import frames, result
from scripts.benches.options import Options
from scripts.benches.result import Figure, Result
from scripts.benches.stand import Stand, open_workshop
from scripts.benches.targets import REST_CALL, REST_CLIENT, REST_IDEAL, REST_RATE
from scripts.local.errors import LocalError
from spark_app.followers.sinks import state
from spark_app.followers.sinks.process import SinkProcess
from spark_app.settings.sinks import Rest, SinkSettings

# (rows of a call, calls at a time) -> rows/s that were published, at 34 ms for one row and 91 to 100 ms for ten.
PUBLISHED = {(1, 4): 122, (1, 8): 249, (1, 16): 447, (10, 4): 456, (10, 8): 877, (10, 16): 1687}
SIZES = (*PUBLISHED, (10, 64))
DELAY_S = 0.034
SECONDS = 4  # of a run, at the rate that the service allows
WRONG = 65
SERVER = """
import asyncio, sys
delay, answer = float(sys.argv[1]), b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
class Service(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.data, self.left = transport, b"", 0
    def data_received(self, data):
        self.data += data
        while True:
            head, end, rest = self.data.partition(b"\\r\\n\\r\\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0]) if end else 0
            if not end or len(rest) < length:
                return
            self.data = rest[length:]
            asyncio.get_running_loop().call_later(delay, self.transport.write, answer)
async def main():
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


@dataclass
class Size:
    """Rows of a call and calls at a time.

    Attributes:
        rates: of "client" and "sink": rows/s of each round.
        cpu: of both: milliseconds of CPU of a call, of each round.
    """

    rows: int
    in_flight: int
    rates: dict[str, list[float]] = field(default_factory=lambda: {"client": [], "sink": []})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {"client": [], "sink": []})

    @property
    def ideal(self) -> float:
        """Rows/s if nothing but the service took time."""
        return self.rows * self.in_flight / DELAY_S

    def add(self, who: str, calls: int, seconds: float, cpu: float) -> None:
        self.rates[who].append(calls * self.rows / seconds)
        self.cpu[who].append(cpu / calls * 1000)


def run(options: Options) -> Result:
    """Measure and print."""
    sizes = [Size(*size) for size in SIZES]
    with open_workshop() as workshop, open_service() as url:
        stand = workshop.stand(1)
        count = int(max(size.ideal for size in sizes) * SECONDS)
        stand.ingest(workshop.records(frames.play(1, 1000), count, 1), count)
        for number in range(options.rounds):
            for size in sizes:
                calls = int(min(size.ideal * SECONDS, count)) // size.rows
                began, used = time.perf_counter(), time.process_time()
                asyncio.run(_client(url, size, calls))
                size.add("client", calls, time.perf_counter() - began, time.process_time() - used)
                _sink(stand, url, size, calls, f"s{size.rows}_{size.in_flight}_{number}")
            result.log_progress(f"round {number + 1} of {options.rounds}")
    rows = [
        [f"{size.rows} x {size.in_flight}", PUBLISHED.get((size.rows, size.in_flight), "-")]
        + [round(median(size.rates[who])) for who in ("client", "sink")]
        + [round(size.ideal), *(f"{median(size.cpu[who]):.2f}" for who in ("client", "sink"))]
        for size in sizes
    ]
    result.show(["rows x in flight", "published", "client", "sink", "ideal", "CPU ms, client", "CPU ms, sink"], rows)
    print(f"rows/s, medians of {options.rounds} rounds; the service answers after {DELAY_S * 1000:g} ms")
    return Result(list(_figures(sizes)), {"sizes": [vars(size) for size in sizes]})


@contextmanager
def open_service() -> Iterator[str]:
    """The address of the service, which answers after `DELAY_S`."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(DELAY_S)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
    finally:
        process.kill()
        process.wait()


async def _client(url: str, size: Size, calls: int) -> None:
    """As many calls as a sink makes, with a body that is ready."""
    row = b'{"gamer_id":"gamer-000001","session":"0123456789abcdef","bet":12.5,"_offset":123456,"_partition":0}'
    body, left = b"[" + b",".join([row] * size.rows) + b"]", iter(range(calls))
    connector = aiohttp.TCPConnector(limit=size.in_flight)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def post() -> None:
            for _ in left:
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                    await answer.content.read()

        await asyncio.gather(*(post() for _ in range(size.in_flight)))


def _sink(stand: Stand, url: str, size: Size, calls: int, name: str) -> None:
    """The rate is that between the first and the last answer; CPU is that of all, planning too."""
    lake, settings = stand.opened.lake, stand.opened.settings
    sink = SinkSettings(
        rows_per_call=size.rows,
        in_flight=size.in_flight,
        begin="all",
        where=f"_offset < {calls * size.rows}",
        rest=Rest(url=url, allow_private=True),
    )
    used = time.process_time()
    process = SinkProcess(name, settings.model_copy(update={"sinks": {name: sink}}), once=True)
    process.start()
    if not process.join(600):
        raise LocalError(f"{name} does not end", WRONG)
    used = time.process_time() - used
    accepted = state.read(lake, name).get("accepted")
    if accepted != calls * size.rows:
        raise LocalError(f"{name}: {accepted} of {calls * size.rows} rows were accepted", WRONG)
    size.add("sink", calls, _seconds(Path(lake.root) / lake.sink(name) / "ledger"), used)


def _seconds(ledger: Path) -> float:
    """From the first call to the last answer, by the ledger."""
    lines = [json.loads(line) for file in ledger.iterdir() for line in file.read_text().splitlines()]
    first = min(line["at"] - line["ms"] * 1000 for line in lines)
    return float(max(line["at"] for line in lines) - first) / 1e6


def _figures(sizes: list[Size]) -> Iterator[Figure]:
    beside = [truediv(*(median(size.rates[who]) for who in ("sink", "client"))) for size in sizes]
    yield Figure(REST_CLIENT.what, min(beside), REST_CLIENT)
    few = [median(size.rates["sink"]) / size.ideal for size in sizes if size.in_flight <= 16]
    yield Figure(REST_IDEAL.what, min(few), REST_IDEAL)
    most = next(size for size in sizes if (size.rows, size.in_flight) == (10, 64))
    yield Figure.of(REST_RATE.what, most.rates["sink"], REST_RATE)
    yield Figure.of(REST_CALL.what, itertools.chain.from_iterable(s.cpu["sink"] for s in sizes[3:]), REST_CALL)
