"""scripts/shell, status, settings, replay, rebuild, audit and doctor: sets what the app's command of that name needs
here, then becomes it."""

import os
import sys
from pathlib import Path

from scripts.local import java
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.errors import USAGE, LocalError

WITHOUT_SPARK = {"audit", "status", "settings"}


def main() -> int:
    command, *arguments = sys.argv[1:]
    try:
        os.environ |= lake_variable(_take_lake(arguments)) | ({} if command in WITHOUT_SPARK else spark_variables())
    except LocalError as fault:
        print(f"{command}: {fault}", file=sys.stderr)
        return fault.code
    return os.execv(sys.executable, [sys.executable, "-m", "spark_app", command, *arguments])


def spark_variables() -> dict[str, str]:
    """JAVA_HOME and jars."""
    return {
        "JAVA_HOME": str(java.find().spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PROTOLAKE_SPARK__JARS": str(ensure("spark")),
    }


def lake_variable(lake: Path | None) -> dict[str, str]:
    """The lake; one that the environment names already is kept unless `lake` is given."""
    known = lake is None and "PROTOLAKE_LAKE__PATH" in os.environ
    return {} if known else {"PROTOLAKE_LAKE__PATH": str(lake or ROOT / "lake")}


def _take_lake(arguments: list[str]) -> Path | None:
    """Takes `--lake DIR` out of the arguments; the others are the command's own."""
    if "--lake" not in arguments:
        return None
    at = arguments.index("--lake")
    if at + 1 == len(arguments):
        raise LocalError("--lake needs a folder", USAGE)
    lake = Path(arguments[at + 1]).absolute()
    del arguments[at : at + 2]
    return lake


if __name__ == "__main__":
    sys.exit(main())
