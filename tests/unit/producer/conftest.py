"""No test of the producer may read the settings of whoever runs it."""

import os

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("PRODUCER_")]:
        monkeypatch.delenv(key)
