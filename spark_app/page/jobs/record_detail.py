"""All that is known of one record in quarantine: the reason, its headers, its bytes, and what they decode to."""

from __future__ import annotations

import base64
import json
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ContractError
from spark_app.page.clear_text import shows_clear_text
from spark_app.page.jobs.framed_value import FramedValue, Part
from spark_app.page.jobs.open_rows import OpenRows
from spark_app.page.jobs.shown_text import MOST_DUMPED, hex_dump, plain
from spark_app.page.said import amount
from spark_app.protobuf.schemas.ledger import Ledger
from spark_app.settings.models import Settings
from spark_app.tables.fixed_settings import message_index_rule

MOST_HEADERS = 50
LONGEST_HEADER = 512  # bytes
WHERE = (
    "WHERE q.topic = ? AND q.topic_id IS NOT DISTINCT FROM ? AND q.partition = ? AND q.offset = ? "
    "ORDER BY q.quarantined_at DESC LIMIT 1"
)
FACTS = ("cause", "message_type", "refused_schema", "schema_id", "schema_guid", "table", "definition")
RAW = ("detail", "key", "value", "headers", "omitted_bytes", "omitted_sha256")


def answer(
    lake: Lake, settings: Settings, topic: str, topic_id: str | None, partition: int, offset: int
) -> dict[str, Any]:
    """
    Returns:
        "times": name -> seconds since 1970 or None, "facts": name -> text, "cause", "is_open", "rules", "hidden"; and,
        unless that is true, "detail", "headers" [[name, value]], "key" and "value" as {"size", "dump", "shown"},
        "parts" as of `FramedValue`, and "omitted".
    """
    rows = OpenRows(lake, settings)
    where = (WHERE, topic, topic_id, partition, offset)
    clear = shows_clear_text(lake, settings)
    names = [*FACTS, "rules", *(RAW if clear else ())]
    columns = ", ".join(rows.column(name) for name in names) if rows.exist else ""
    times = "epoch_us(q.quarantined_at) / 1e6, epoch_us(q.timestamp) / 1e6"
    found = rows.select(f"{times}, {columns}", *where, placed=True) if rows.exist else []
    if not found:
        return {"failed": "the table of quarantine has this record no more"}
    quarantined_at, produced_at, *values = found[0]
    row = dict(zip(names, values, strict=True))
    facts = {
        "schema": row["schema_guid"] or row["schema_id"],
        "schema kept out": row["refused_schema"],
        "message": row["message_type"],
        "table": row["table"],
        "definition": row["definition"],
    }
    said = {
        "cause": row["cause"] or "",
        "rules": [plain(str(rule)) for rule in row["rules"] or ()],
        "times": {"quarantined at": quarantined_at, "produced at": produced_at},
        "facts": {name: plain(str(value)) for name, value in facts.items() if value not in (None, "")},
        "is_open": bool(rows.select("1", *where)),
        "hidden": not clear,
    }
    return said | (_raw(lake, settings, row) if clear else {})


def _raw(lake: Lake, settings: Settings, row: dict[str, Any]) -> dict[str, Any]:
    key, value, headers = row["key"], row["value"], row["headers"]
    omitted = row["omitted_bytes"]
    return {
        "detail": plain(row["detail"] or ""),
        "headers": _headers(headers),
        "key": _bytes(key),
        "value": _bytes(value),
        "omitted": "" if omitted is None else f"{amount(omitted)} bytes with the SHA-256 {row['omitted_sha256']}",
        "parts": _parts(lake, settings, value, key, headers),
    }


def _parts(
    lake: Lake, settings: Settings, value: bytes | None, key: bytes | None, headers: str | None
) -> list[dict[str, Any]]:
    try:
        reader = FramedValue(settings, Ledger(lake, message_index_rule(lake) or settings.decode.message_index or None))
    except (ContractError, TypeError) as error:  # of another release, or damaged
        return [vars(Part("value", [plain(f"The ledger of the schemas cannot be read: {error}")]))]
    parts = [] if value is None else reader.parts(value, headers)
    framed_key = settings.decode.framed_keys and key is not None
    return parts + (reader.parts(key or b"", headers, is_key=True) if framed_key else [])


def _bytes(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    return {"size": len(data), "shown": min(len(data), MOST_DUMPED), "dump": hex_dump(data)}


def _headers(text: str | None) -> list[list[str]]:
    """[name, value] of each header; bytes that are no text are shown as hex."""
    try:
        found = json.loads(text or "[]")
        pairs = [(str(one["key"]), base64.b64decode(one["value"] or "")) for one in found[:MOST_HEADERS]]
    except (KeyError, TypeError, ValueError):
        return [["the headers cannot be read", plain((text or "")[:LONGEST_HEADER])]]
    more = [["...", f"{amount(len(found) - MOST_HEADERS)} more headers"]] if len(found) > MOST_HEADERS else []
    return [[plain(name[:LONGEST_HEADER]), _header_value(data)] for name, data in pairs] + more


def _header_value(data: bytes) -> str:
    cut = data[:LONGEST_HEADER]
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text.isprintable() and text else cut.hex(" ")
    return shown if len(data) <= LONGEST_HEADER else f"{shown} ... ({amount(len(data))} bytes)"
