"""Sets the environment of an app command (Java, jars, lake) in a clone, and replaces itself by it (exec).

It serves ./scripts/shell, status, settings, replay, rebuild, audit and doctor.
"""

import os
import sys

from scripts.local import java
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.errors import LocalError

WITHOUT_SPARK = {"audit", "status", "settings"}


def main() -> int:
    command, *arguments = sys.argv[1:]
    try:
        os.environ |= lake_variable() | ({} if command in WITHOUT_SPARK else spark_variables())
    except LocalError as fault:
        print(f"{command}: {fault}", file=sys.stderr)
        return fault.code
    return os.execv(sys.executable, [sys.executable, "-m", "spark_app", command, *arguments])


def spark_variables() -> dict[str, str]:
    """JAVA_HOME and the folder of the jars."""
    return {
        "JAVA_HOME": str(java.find().spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PROTOLAKE_SPARK__JARS": str(ensure("spark")),
    }


def lake_variable() -> dict[str, str]:
    """The lake of this clone, unless the environment names one; `--lake` is an option of the command itself."""
    return {"PROTOLAKE_LAKE__PATH": os.environ.get("PROTOLAKE_LAKE__PATH") or str(ROOT / "lake")}


if __name__ == "__main__":
    sys.exit(main())
