"""Payloads made to fell a worker: each ends as a row or with a cause, in bounded memory, and its neighbours land."""

import json
import subprocess
import sys

import pytest

from tests.support.payload_bombs import BOMBS, REFUSED

MOST_GROWN = 100  # times the payload
LEAST = 1 << 20  # bytes of payload that memory is counted for: below, it is all allocators


@pytest.mark.parametrize("name", BOMBS)
def test_payload_bomb_ends_once_and_fells_nobody(name: str) -> None:
    command = [sys.executable, "-m", "tests.support.payload_bombs", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    refused = REFUSED.get(name, 0)
    assert found["silver"] == {"g": 6 - refused}
    assert found["quarantine"] == ({"decode_payload": refused} if refused else {})
    assert found["grown"] <= MOST_GROWN * max(found["bytes"], LEAST)
