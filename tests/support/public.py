"""The public package `protolake`, which the build maps to `spark_app/public`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import spark_app


def install() -> None:
    """Make `import protolake` find it in the tree, as it does where the wheel is installed."""
    if "protolake" not in sys.modules:
        made = ModuleType("protolake")
        made.__path__ = [str(Path(spark_app.__file__).parent / "public")]
        sys.modules["protolake"] = made
