"""The address of a stack's lake: a folder, a bucket in a store of the user's own, or a bucket in a store that the stack
starts.

How a lake in a started store is reached is noted in .cache/stores under the lake's address, so that commands such as
./scripts/status find it. A note holds no key, only the name of the file with the keys.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scripts.local.artifacts import ROOT
from scripts.local.errors import UNREACHABLE, USAGE, LocalError
from scripts.local.ports import is_listening
from spark_app.model.address import ADDRESS, UNTESTED, StorageAddress

if TYPE_CHECKING:
    from spark_app.settings.models import Settings
    from spark_app.settings.storing import Store

NOTES = ROOT / ".cache" / "stores"
BUCKET_NAME = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
NAME_STORE = "PROTOLAKE_STORE__ENDPOINT or PROTOLAKE_STORE__REGION"


def is_address(lake: str) -> bool:
    """Whether the lake is in a bucket."""
    return "://" in lake


def names_store(store: Store) -> bool:
    """Whether the settings say which store a bucket is in. Variables AWS_* do not count: many machines have them for
    something else."""
    return bool(store.endpoint or store.region or store.credentials_file)


def own_address(address: str, settings: Settings) -> StorageAddress:
    """A lake in the store that the settings name."""
    if StorageAddress(address).scheme in UNTESTED and not settings.lake.untested:
        raise LocalError(f"--lake {address} was never tested; set lake.untested = true to use it all the same", USAGE)
    return replace(settings.lake_address, root=address)


def started_address(address: str, state: Path, port: int) -> StorageAddress:
    """A lake in the store that the stack of a state folder starts."""
    from scripts.local.objectstore import ObjectStore  # its libraries are not there before anything is installed

    bucket, prefix = StorageAddress(address).bucket, StorageAddress(address).prefix
    if not BUCKET_NAME.fullmatch(bucket):
        raise LocalError(
            f"--lake {address}: a store makes no bucket {bucket!r}: give a name of 3 to 63 characters, a-z 0-9 . -, "
            "such as s3://games/demo",
            USAGE,
        )
    return ObjectStore(state, port, bucket).address(prefix, state / "here" / f"{bucket}-{_digest(address)}")


def refuse_fresh(address: str) -> None:
    """A bucket cannot be moved aside in one step, and nothing is ever deleted."""
    raise LocalError(
        f"--fresh moves folders, and {address} is in a bucket: leave it out and name another prefix, such as --lake "
        f"{address.rstrip('/')}-2",
        USAGE,
    )


def check_address(address: str) -> None:
    if not ADDRESS.fullmatch(address):
        raise LocalError(
            f"--lake {address} is neither a folder nor s3://bucket/prefix of letters, digits and any of . _ - /", USAGE
        )


def variables(address: StorageAddress) -> dict[str, str]:
    """How any program reaches a lake in a started store."""
    return {
        "PROTOLAKE_LAKE__PATH": address.root,
        "PROTOLAKE_STORE__ENDPOINT": address.endpoint,
        "PROTOLAKE_STORE__REGION": address.region,
        "PROTOLAKE_STORE__CREDENTIALS_FILE": address.credentials_file,
        "PROTOLAKE_STORE__LOCAL_PATH": address.local,
        "AWS_PROFILE": "default",  # the only one in the file of keys
    }


def note(address: StorageAddress, state: Path) -> None:
    """Note how the lake is reached, for `recall`."""
    NOTES.mkdir(parents=True, exist_ok=True)
    path = noted(address.root)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"state": str(state), "variables": variables(address)}))
    partial.replace(path)


def recall(lake: str) -> dict[str, str]:
    """The variables of a lake in a started store; empty if no stack of this clone has started one for it."""
    return dict(_read(lake).get("variables", {}))


def require_store(lake: str) -> None:
    """A LocalError if the store that a stack has started for the lake does not run: requests would wait for a minute
    each."""
    found = _read(lake)
    endpoint = found.get("variables", {}).get("PROTOLAKE_STORE__ENDPOINT", "")
    if endpoint and not is_listening(urlsplit(endpoint).port or 0):
        raise LocalError(
            f"the object store of {lake}, {endpoint}, does not run: start it with ./scripts/run --lake {lake} "
            f"--state {found['state']}, or name a store of your own with {NAME_STORE}",
            UNREACHABLE,
        )


def _read(lake: str) -> dict[str, Any]:
    try:
        found = json.loads(noted(lake).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def noted(lake: str) -> Path:
    """The file of a lake's note."""
    return NOTES / f"{_digest(lake)}.json"


def _digest(address: str) -> str:
    return hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:12]
