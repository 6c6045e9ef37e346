"""What several files of this folder need."""

import pytest

from spark_app.schemas.caps import Caps


@pytest.fixture
def only_cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much else to do gives protoc its seconds of CPU late, but gives them."""
    monkeypatch.setattr(Caps, "compile_clock_s", 600.0)
