"""Many damaged and odd files in the folder of a source, and a process that ingests what it can of them.

`python -m tests.support.strange_files FOLDER LAKE` prints what became of the files as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_app.sources.files.folder import as_text
from tests.stores.test_stores_file_planning import Taking
from tests.support.exports import DiskExports
from tests.support.file_sources import framed, json_text, parquet_table
from tests.support.mutations import mutate

HEADERS = [[{"key": "a", "value": b"b"}] * 3, None, []]


def originals(folder: Path) -> dict[str, bytes]:
    """Ending -> content, of each form that a file of records may have."""
    table = parquet_table(framed(3000))
    table = table.append_column("headers", pa.array((HEADERS * 1000)[:3000]))
    text, found = json_text(framed(40)).encode(), dict[str, bytes]()
    for name, options in {
        "plain": {"use_dictionary": False, "compression": "none"},
        "packed": {"compression": "zstd", "row_group_size": 700, "data_page_size": 2000},
        "second": {"data_page_version": "2.0", "compression": "snappy", "write_page_index": True},
        "delta": {"use_dictionary": False, "column_encoding": {"value": "DELTA_BYTE_ARRAY"}},
        "shared": {"use_dictionary": ["value", "key"]},
    }.items():
        own = table.set_column(1, "value", table["value"].dictionary_encode()) if name == "shared" else table
        pq.write_table(own, folder / name, **options)
        found[f"{name}.parquet"] = (folder / name).read_bytes()
    lines = {"a.json": text, "b.jsonl.gz": gzip.compress(text), "c.ndjson.zst": pa.compress(text, "zstd", asbytes=True)}
    return found | lines


def damage(data: bytes, other: bytes, dice: random.Random) -> bytes:
    """Small accidents, or large ones: holes, swapped ends, and a footer that lies."""
    place, length = dice.randrange(len(data)), dice.randrange(1, len(data))
    match dice.randrange(6):
        case 0:
            return data[:place] + bytes(min(length, len(data) - place)) + data[place + length :]
        case 1:
            return data[:place] + other[-length:]
        case 2:
            ends = bytearray(data)
            for _ in range(dice.randrange(1, 6)):  # in the footer, or the last lines
                ends[-dice.randrange(1, min(len(data), 2000))] = dice.randrange(256)
            return bytes(ends)
        case 3:
            return data[:-8] + dice.randbytes(4) + data[-4:]
    return mutate(data, other, dice)


def write(folder: Path, count: int, dice: random.Random, secret: Path, spare: Path) -> set[str]:
    """Write about `count` files; returns the keys of all."""
    kinds = originals(spare)
    odd = {
        0: lambda path: path.symlink_to(secret),
        1: lambda path: path.symlink_to(os.path.relpath(secret, path.parent)),
        2: os.mkfifo,
        3: lambda path: path.touch() or os.truncate(path, dice.randrange(1 << 33)),
        4: lambda path: path.symlink_to(path),
        5: bind,
        6: lambda path: path.mkdir(),
        7: lambda path: path.symlink_to("/dev/zero"),
    }
    names = set()
    for number in range(count):
        inner = folder / dice.choice(("", "d", "d/e"))
        ending = dice.choice([*kinds])
        path = inner / f"{number:05d}-{ending}"
        inner.mkdir(parents=True, exist_ok=True)
        if number % 10 == 9:
            odd[number // 10 % len(odd)](path)
        else:
            path.write_bytes(damage(kinds[ending], kinds[dice.choice([*kinds])], dice))
        if not (path.is_dir() and not path.is_symlink()):
            names.add(path.relative_to(folder).as_posix())
    (folder / "linked").symlink_to(secret.parent)
    (folder / os.fsdecode(b"\xff.json")).write_bytes(kinds["a.json"])
    return names


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_DIRECTORY)
        server.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def ingest(folder: Path, lake: Path, secret: bytes) -> dict[str, object]:
    taking, taken, seen = Taking(lake, DiskExports(folder)), set[str](), 0
    while keys := taking.take():
        taken |= set(keys)
        for value in taking.values:
            seen += value is not None and secret in value
        taking.values = []
    kept = taking.planner._kept_out
    return {
        "taken": sorted(taken),
        "named": {as_text(key): why for key, why in taking.planner.broken.items()},
        "without rows": sorted(key for key, one in kept.items() if one.why is None),
        "secrets": seen,
        "memory": peak(),
    }


def peak() -> int:
    """The most bytes that this process had. What `getrusage` says may be of the process that has started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    found = ingest(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].encode())
    print(json.dumps(found))
