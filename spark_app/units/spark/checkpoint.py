"""Checks Spark's checkpoint of the ingest query against the manifests, which are authoritative.

    metadata         id of the query
    sources/0/0      where its batch 0 starts
    offsets/N        where batch N ends; batch N + 1 starts there
    commits/N        batch N is done

A missing checkpoint is created again from the manifests. An existing one must be intact, and its last batch must be the
last committed one or start where that one ended, because Spark plans a batch before it is committed.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

from spark_app.lake.delta.manifest import Manifest, follows
from spark_app.lake.delta.problems import Problem, refuse
from spark_app.lake.files import failpoints
from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.model.log import log
from spark_app.model.offsets import Offsets

REMEDY = "`doctor --repair` moves the checkpoint aside; the next start recreates it from the manifests"
VERSIONS = ("v1", "v2")
CHECKSUM = b"crc\0"


def is_there(lake: Lake) -> bool:
    """True if there is a checkpoint to continue from; otherwise the manifests give the start."""
    return lake.local_state.exists(f"{lake.checkpoint}/offsets")


def examine(lake: Lake, last: Manifest | None) -> list[Problem]:
    """Compare the checkpoint with the manifests; at most one problem. `last` is the last unit that moved the
    offsets."""
    if last is None or not is_there(lake):
        return []
    try:
        fault = _fault(lake.path(lake.checkpoint), last)
    except (ContractError, OSError) as error:
        fault = str(error)
    return [Problem(fault, REMEDY, repair=lambda: set_aside(lake))] if fault else []


def check(lake: Lake, last: Manifest | None, rebooted: bool) -> None:
    """Raise if the checkpoint does not match the manifests. One of a lake in a bucket is made again, because it is only
    as new as the last run on this machine.

    Args:
        last: the last unit that moved the offsets.
        rebooted: the machine has started since the last run. Spark does not fsync its checkpoint, so one that a power
            cut may have torn is moved aside and created again from the manifests, without a person.

    Raises:
        ContractError: the checkpoint does not match the manifests.
    """
    found = examine(lake, last)
    if found and not lake.storage.is_local:  # another machine has gone on with the lake
        return forget(lake, found[0].what)
    for problem in found if rebooted else ():
        if problem.repair is not None:
            log.warning(problem.what, done=problem.repair())
            found = examine(lake, last)
    refuse(found)


def set_aside(lake: Lake) -> str:
    """Keep the checkpoint under another name, on this machine as it is; returns what was done."""
    return lake.set_aside(lake.checkpoint, is_local=True)


def forget(lake: Lake, why: str) -> None:
    """Remove the checkpoint: the next query begins where the manifests end."""
    log.warning("checkpoint recreated from the manifests", reason=why)
    old = f"{lake.checkpoint}.old"
    with failpoints.around("checkpoint"):
        lake.local_state.delete_all(old)
        if lake.local_state.exists(lake.checkpoint):
            lake.local_state.move(lake.checkpoint, old)  # in one step: `check` rejects half a checkpoint
        lake.local_state.delete_all(old)


def read_offsets(path: Path) -> Offsets:
    """The offsets in a checkpoint file: the last line of JSON, after a line with the version.

    Raises:
        ContractError: the file is missing or damaged.
    """
    lines = _lines(path, padding="\0")
    if len(lines) < 2 or lines[0] not in VERSIONS or not _are_offsets(lines[-1]):
        raise ContractError(f"{path} contains no offsets")
    return lines[-1]  # type: ignore[no-any-return]


def read_range(folder: Path, batch: int) -> tuple[Offsets, Offsets]:
    """Where a batch starts and ends, as Spark planned it.

    Raises:
        ContractError: a file is missing or damaged.
    """
    first = folder / "offsets" / str(batch - 1) if batch else folder / "sources" / "0" / "0"
    return read_offsets(first), read_offsets(folder / "offsets" / str(batch))


def _fault(folder: Path, last: Manifest) -> str | None:
    batches, done = _numbers(folder / "offsets"), _numbers(folder / "commits")
    newest = max(batches, default=None)
    damage = _damage(folder, newest, max(done, default=None))
    if damage or (newest is None and not (folder / "sources" / "0" / "0").exists()):
        return damage
    ingested = last.source["end"]
    if newest is None:
        start = end = read_offsets(folder / "sources" / "0" / "0")
    elif newest == 0 and not (folder / "sources" / "0" / "0").exists():
        start, end = ingested, read_offsets(folder / "offsets" / "0")
    else:
        start, end = read_range(folder, newest)
    if end == ingested or (newest not in done and follows(start, ingested)):
        return None
    return (
        f"the checkpoint {folder} does not match the end of unit {last.sequence} ({_brief(ingested)}): its last batch "
        f"is {newest}, {_brief(start)} to {_brief(end)}: it is an older copy, of another lake, or newer than the "
        "manifests"
    )


def _damage(folder: Path, newest: int | None, done: int | None) -> str | None:
    """A message for the first damaged file of those that Spark reads at its start; None if all are intact."""
    if not isinstance(_metadata(folder / "metadata").get("id"), str):
        return f"{folder / 'metadata'} does not name a query"
    if newest is not None:
        read_offsets(folder / "offsets" / str(newest))
        if newest > 0:
            read_offsets(folder / "offsets" / str(newest - 1))
    if (folder / "sources" / "0" / "0").exists():
        read_offsets(folder / "sources" / "0" / "0")
    if done is not None:
        _check_commit(folder / "commits" / str(done))
        if newest is None or done > newest:
            return f"{folder / 'offsets'} ends at {newest}, although batch {done} is done"
    stale = [_checksum(folder / "offsets" / str((newest if newest is not None else -1) + 1))]
    stale += [_checksum(folder / "commits" / str(number)) for number in (newest, (newest or 0) + 1) if number != done]
    left = [path for path in stale if path.exists()]
    if left:
        return f"{left[0]} has no data file: Spark would assume that another query wrote it"
    read = [("metadata",), ("sources", "0", "0"), ("commits", str(done))]
    read += [("offsets", str(number)) for number in (newest, (newest or 0) - 1)]
    torn = [path for path in (folder.joinpath(*parts) for parts in read) if path.exists() and not _is_whole(path)]
    return f"{torn[0]} does not match its checksum" if torn else None


def _metadata(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ContractError(f"{path} cannot be read ({error})") from None
    return value if isinstance(value, dict) else {}


def _check_commit(path: Path) -> None:
    lines = _lines(path)
    if lines[0] not in VERSIONS or not all(isinstance(line, dict) for line in lines[1:2]):
        raise ContractError(f"{path} is not an entry of Spark's commit log")


def _lines(path: Path, padding: str = "") -> list[Any]:
    """The version as text, then the parsed lines of JSON of a file of one of Spark's logs."""
    try:
        version, *rest = path.read_text().lstrip(padding).strip().splitlines() or [""]
        return [version, *map(json.loads, rest)]
    except (OSError, ValueError) as error:
        raise ContractError(f"{path} cannot be read ({error})") from None


def _are_offsets(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(parts, dict) and all(p.isdecimal() and type(offset) is int for p, offset in parts.items())
        for parts in value.values()
    )


def _numbers(folder: Path) -> set[int]:
    return {int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()}


def _checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _is_whole(path: Path) -> bool:
    """True if the file matches Hadoop's checksum file (one CRC-32 per so many bytes), or has none."""
    try:
        stored = _checksum(path).read_bytes()
    except FileNotFoundError:
        return True
    if len(stored) < 8 or not stored.startswith(CHECKSUM):
        return False
    size = struct.unpack(">I", stored[4:8])[0]
    data = path.read_bytes()
    sums = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), size)] if size else []
    return stored[8:] == struct.pack(f">{len(sums)}I", *sums)


def _brief(offsets: Offsets) -> str:
    text = ", ".join(f"{t}/{p} {offset}" for t, parts in offsets.items() for p, offset in parts.items())
    return text if len(text) <= 200 else f"{text[:200]} ..."
