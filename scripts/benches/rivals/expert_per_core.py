"""The expert's consumer in a process for each core: each reads its partitions, and one process appends for all."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pyarrow as pa

from scripts.benches.rivals import expert, given


def work(partitions: list[int], lake: Path, most: int, sent: Connection) -> None:
    """Write the files of some partitions, and send the entries to append."""
    consumer, ends = expert.open_consumer(partitions)
    decoder = expert.Decoder(given.descriptors())
    with ThreadPoolExecutor(1) as pool:
        for parts in expert.batches(consumer, ends, most):
            sent.send(expert.write(lake, parts, decoder, pool))
    consumer.close()


def main() -> None:
    lake, most = Path(os.environ["PROTOLAKE_LAKE__PATH"]), int(os.environ["PROTOLAKE_BATCH__RECORDS"])
    given.mark(lake, "offsets", 0)
    partitions = list(range(given.shape().partitions))
    cores = min(os.cpu_count() or 1, len(partitions))
    forked, committer = multiprocessing.get_context("fork"), expert.Committer(lake)
    workers, open_ends = [], list[Connection]()
    for core in range(cores):
        ours, theirs = forked.Pipe(duplex=False)
        worker = forked.Process(target=work, args=(partitions[core::cores], lake, most // cores, theirs))
        worker.start()
        theirs.close()  # so that the end of the child closes the pipe
        workers.append(worker)
        open_ends.append(ours)
    while open_ends:
        for one in wait(open_ends):
            assert isinstance(one, Connection)
            try:
                committer.commit(one.recv())
            except EOFError:
                open_ends.remove(one)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


if __name__ == "__main__":
    pa.set_cpu_count(1)
    main()
