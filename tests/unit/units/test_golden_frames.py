"""Values that Confluent's serializer once wrote (tests/cases/make_frames.py says how) still land as what they hold."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format

from spark_app.audit.expected import expected, rows_of
from spark_app.protobuf import framing
from spark_app.protobuf.decode import decoder_for
from tests.cases.make_frames import make
from tests.support.frames import headers_of
from tests.support.protos import compile_text, message_class

FILE = Path(__file__).parents[2] / "cases" / "frames.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden_frame_lands_as_its_message(case: dict[str, Any]) -> None:
    value = bytes.fromhex(case["value"])
    headers = headers_of([[(name, bytes.fromhex(data)) for name, data in case["headers"]]])
    frames = framing.split(pa.array([value], pa.binary()), headers)
    assert isinstance(frames.key_of(0), str) == bool(case["headers"])
    assert frames.status.tolist() == [framing.OK]
    decodable = compile_text(case["schema"])
    decoder = decoder_for(decodable, frames.indexes[frames.index[0]])
    assert decoder is not None
    assert decoder.full_name == case["message"]
    payload = value[frames.body[0] :]
    kind = message_class(decodable, case["message"])
    assert kind.FromString(payload) == json_format.ParseDict(case["fields"], kind())
    decoded = decoder.decode(pa.array([payload], pa.binary()))
    assert (decoded.rows.tolist(), decoded.rejects) == ([0], [])
    assert rows_of(decoded.table) == [expected(kind.FromString(payload))]


def test_todays_serializer_still_writes_the_same_bytes() -> None:
    made = json.loads(json.dumps(make()))
    for case in (*made, *CASES):
        case["headers"] = [_without_guid(name, data) for name, data in case["headers"]]
    assert made == CASES


def _without_guid(name: str, data: str) -> tuple[str, str]:
    """The registry in memory draws its GUIDs."""
    return name, data[:2] + data[34:]
