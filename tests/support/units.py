"""The parts of the app that need no JVM, on a test's lake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_app.lake.delta import durability
from spark_app.lake.delta.commit import TableCommitter
from spark_app.lake.delta.manifest import Manifests
from spark_app.lake.lake import Lake
from spark_app.model.table_names import TableNames
from spark_app.settings.models import Event, Tables
from spark_app.settings.storing import LakeSettings
from spark_app.tables.admission import TableAdmission


def open_committer(lake: Lake, settings: LakeSettings | None = None) -> tuple[Manifests, TableCommitter]:
    """As after a restart: everything is read from the disk."""
    manifests = Manifests(lake)
    committer = TableCommitter(lake, manifests, settings or LakeSettings())
    durability.mend(lake, committer.synced, TableNames())
    return manifests, committer


def table_desk(
    lake: Lake, allowed: tuple[str, ...] = (), cap: int = 10, event: Mapping[str, Any] | None = None
) -> TableAdmission:
    return TableAdmission(lake, Event(**(event or {})), Tables(allowlist=allowed, max_tables=cap))
