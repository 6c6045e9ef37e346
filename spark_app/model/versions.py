"""What a worker must have in common with the driver: versions, because both must read a record alike, and the umask."""

from __future__ import annotations

import functools
import platform
from importlib.metadata import PackageNotFoundError, version

from spark_app import __version__

# Variables in the environment of a cluster's workers.
VERSIONS = "PROTOLAKE_VERSIONS"  # of the app, as JSON
UMASK = "PROTOLAKE_UMASK"  # `lake.umask`, in octal digits
OTHER_VERSIONS = "this worker has other versions than the app"
PACKAGES = ("confluent-kafka", "duckdb", "obstore", "protobuf", "ptars", "pyarrow", "pyspark")


@functools.cache
def own_versions() -> dict[str, str]:
    """Name -> version: of Protolake, of Python, and of the packages through which a record passes."""
    found = {"protolake": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def differences(wanted: dict[str, str], found: dict[str, str]) -> str:
    """What another process has otherwise, as "<name> <its version> instead of <version>, ..."; "" if nothing."""
    has = {name: found.get(name, "none") for name in wanted}
    return ", ".join(f"{name} {has[name]} instead of {wanted[name]}" for name in wanted if has[name] != wanted[name])
