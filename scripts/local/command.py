"""Sets the environment of an app command (Java, jars, lake) in a clone, and replaces itself by it (exec).

It serves ./scripts/protolake, and the scripts of single commands.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from scripts.local import java, lakes
from scripts.local.artifacts import ROOT
from scripts.local.downloads import ensure
from scripts.local.environment import without_proxy
from scripts.local.errors import LocalError
from scripts.local.options import LAKE_VARIABLE, SETTINGS_VARIABLE, lake_of

WITHOUT_LAKE = {"settings"}
STARTS = {"run", "page", "spark-master", "spark-worker"}  # not beside a stack
STATE = ROOT / "local"  # of a stack that names no other folder
WITH_SPARK = {"run", "doctor", "replay", "rebuild", "shell", "spark-master", "spark-worker"}


def main() -> int:
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else ""
    needs_spark = command in WITH_SPARK and "--help" not in arguments
    try:
        os.environ |= lake_variable(arguments) | (spark_variables() if needs_spark else {})
    except LocalError as fault:
        print(f"{command}: {fault}", file=sys.stderr)
        return fault.code
    return os.execv(sys.executable, [sys.executable, "-m", "spark_app", *arguments])


def spark_variables() -> dict[str, str]:
    """JAVA_HOME and the folder of the jars."""
    return {
        "JAVA_HOME": str(java.find().spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PROTOLAKE_SPARK__JARS": str(ensure("spark")),
    }


def lake_variable(arguments: Sequence[str]) -> dict[str, str]:
    """The lake of the environment, of the command's settings file, of the stack that was started last, or of this
    clone; `--lake` is an option of the command itself. A lake in a store that a stack has started comes with what
    reaches the store."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--settings", default=os.environ.get(SETTINGS_VARIABLE))
    parser.add_argument("--lake")
    try:
        given, others = parser.parse_known_args(arguments)
        if others[:1] == ["settings"]:  # `settings FILE`
            given.settings = next((one for one in others[1:] if not one.startswith("-")), given.settings)
        named = tomllib.loads(Path(given.settings).read_text()) if given.settings else {}
        noted = "" if given.lake or not {*arguments[:1]}.isdisjoint(STARTS) else _noted()
        lake = lake_of(named, os.environ, noted)
    except (argparse.ArgumentError, OSError, ValueError, TypeError, AttributeError):
        return {}  # the command itself says what is wrong with its settings file
    if noted == lake != str(ROOT / "lake"):
        print(f"{arguments[0]}: the lake {lake} of the stack that was started last in {STATE}", file=sys.stderr)
    return {LAKE_VARIABLE: lake} | _store_variables(arguments, given.lake or lake, given.settings)


def _noted() -> str:
    """The lake of the stack that runs, or ran last, in `STATE`; "" if there was none."""
    try:
        return str(json.loads((STATE / "run" / "options.json").read_text())["lake"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _store_variables(arguments: Sequence[str], lake: str, file: str | None) -> dict[str, str]:
    """How the command reaches the store of a lake, if a stack has started it and no setting names another."""
    found = lakes.recall(lake) if lakes.is_address(lake) else {}
    if not found or _is_store_named(file):
        return {}
    if arguments[0] not in WITHOUT_LAKE and "--help" not in arguments:
        lakes.require_store(lake)
    return found | without_proxy(os.environ)


def _is_store_named(file: str | None) -> bool:
    from spark_app.model.errors import ConfigurationError
    from spark_app.settings import config  # as long to load as the command itself, and rarely needed

    try:
        return lakes.names_store(config.load(file).store)
    except ConfigurationError:
        return True  # the command itself says what is wrong


if __name__ == "__main__":
    sys.exit(main())
