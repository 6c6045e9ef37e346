"""Compressed lines: read like others, in bounded memory, and a bomb is named instead of unpacked."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from spark_app.audit.source_files import Files
from spark_app.lake.lake import Lake
from spark_app.model.offsets import Span
from spark_app.settings.models import Settings
from spark_app.sources.files import scanning
from spark_app.sources.files.columns import SourceColumns
from spark_app.sources.files.folder import open_folder
from spark_app.sources.files.ingested import IngestedFile, IngestedFiles
from spark_app.sources.files.input import FileShare, Part
from spark_app.sources.files.scanning import JSON, Unreadable, format_of, scan
from tests.support.exports import DiskExports, Exports
from tests.support.file_sources import framed, json_text

COLUMNS = SourceColumns("value", "key", "headers", "timestamp")


def packed(data: bytes, ending: str) -> bytes:
    """As two members or frames, which programs that append write."""
    half = len(data) // 2
    if ending == ".gz":
        return gzip.compress(data[:half]) + gzip.compress(data[half:])
    return b"".join(pa.compress(part, codec="zstd", asbytes=True) for part in (data[:half], data[half:]))


@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".GZ"])
def test_compressed_lines_are_read_piece_by_piece_and_audited(
    tmp_path: Path, exports: Exports, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(scanning, "PIECE_BYTES", 1000)
    monkeypatch.setattr(scanning, "CHUNK_BYTES", 700)
    values = framed(200)
    lines = json_text(values).encode()
    exports.write(f"a.jsonl{ending}", packed(lines, ending.lower()) if ending else lines)
    folder = open_folder(exports.address)
    (listed,) = folder.files()
    found = scan(folder, listed, JSON, COLUMNS)
    assert (found.rows, len(found.pieces) > 5, found.pieces[-1].end) == (200, True, len(lines))
    parts = [Part(listed, JSON, piece, piece.row) for piece in found.pieces]
    for some in (parts, parts[3:4], parts[::2], parts[::-1]):
        due = [value for part in some for value in values[part.first : part.first + part.piece.rows]]
        share = FileShare(folder, COLUMNS, "files", tuple(some), 1000, 1 << 20, 1 << 20)
        assert [value for batch in share.read() for value in batch.column("value").to_pylist()] == due

    address = exports.address
    store = {"endpoint": address.endpoint, "region": address.region, "credentials_file": address.credentials_file}
    source = {"kind": "files", "path": address.root}
    settings = Settings(source=source, store=store, lake={"path": str(tmp_path / "lake")})  # type: ignore[arg-type]
    lake = Lake(settings.lake_address)
    entry = IngestedFile(listed.key, listed.size, listed.changed, listed.time, found.digest, 0, 200, 200, listed.tag)
    IngestedFiles(lake.storage, lake.ingested).add(1, [entry])
    files = Files(settings)
    assert files.unproven() == {}
    assert files.read([Span("files", 0, 0, 200)], 1 << 20)[0].value == values


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.json.gz", JSON), ("A.NDJSON.ZST", JSON), ("a.parquet.gz", None), ("a.gz", None), ("json.zst", None)],
)
def test_only_lines_may_be_compressed(name: str, kind: str | None) -> None:
    assert format_of(name) == kind


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_what_is_not_whole_is_named(tmp_path: Path, ending: str) -> None:
    whole = packed(json_text(framed(50)).encode(), ending)
    exports = DiskExports(tmp_path / "in")
    folder = open_folder(exports.address)
    for data, why in ((whole[:-4], "Truncated"), (whole + b"garbage", "."), (b"", "it is empty"), (b"text", ".")):
        exports.write(f"a.json{ending}", data)
        (listed,) = folder.files()
        with pytest.raises(Unreadable, match=why):
            scan(folder, listed, JSON, COLUMNS)


LINE = (b"x", 10**9, "a line of more than 8 MiB")


@pytest.mark.parametrize(
    ("ending", "text", "ratio", "why"),
    [
        (".gz", b"\n", 100, "more than 100 times its size"),
        (".zst", b"\n", 100, "more than 100 times its size"),
        *((ending, *LINE) for ending in ("", ".gz", ".zst")),
    ],
)
def test_a_bomb_is_named_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, text: bytes, ratio: int, why: str
) -> None:
    monkeypatch.setattr(scanning, "LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(scanning, "MOST_RATIO", ratio)
    monkeypatch.setattr(scanning, "LONGEST", 8 << 20)
    exports = DiskExports(tmp_path / "in")
    unpacked = text * (64 << 20)
    exports.write(f"a.json{ending}", packed(unpacked, ending) if ending else unpacked)
    folder = open_folder(exports.address)
    (listed,) = folder.files()
    with pytest.raises(Unreadable, match=why):
        scan(folder, listed, JSON, COLUMNS)


def test_a_window_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """A frame of zstd may ask for gigabytes before it has given a byte."""
    exports = DiskExports(tmp_path / "in")
    exports.write("a.json.zst", bytes.fromhex("28b52ffd00a8") + b"\x01\x00\x00")  # a window of 2 GiB
    folder = open_folder(exports.address)
    (listed,) = folder.files()
    with pytest.raises(Unreadable, match="memory"):
        scan(folder, listed, JSON, COLUMNS)
