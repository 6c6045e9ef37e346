"""The versions of the reference tables in force. They follow tables of other people, which may change, break or go."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_app.lake.files.reference_files import KEY
from spark_app.lake.files.store_errors import StoreError
from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.model.text import one_line
from spark_app.settings.silver import Reference
from spark_app.tables.references.snapshots import Snapshots, Version
from spark_app.tables.references.source_table import ReferenceRefused, SourceTable

WAIT_S = 10.0  # the longest that a unit waits for a look at a table


class ReferenceTables:
    """Of one lake."""

    def __init__(self, lake: Lake, settings: Mapping[str, Reference]):
        self._tables = {name: _Followed(lake, name, own) for name, own in sorted(settings.items())}

    def versions(self) -> dict[str, Version]:
        """The versions in force, by the names of the reference tables. The first call looks at the tables; one that
        cannot be joined now keeps the version that the lake has. Later calls look in the background at the tables that
        are due, and wait for the look only after a long time without units.

        Raises:
            ConfigurationError: a table cannot be joined, and the lake has no version of it.
            StoreError: the object store does not answer, and the lake has no version of a table.
            ContractError: a file about the versions is damaged.
        """
        return {name: table.current() for name, table in self._tables.items()}

    def describe(self) -> dict[str, Any]:
        """For `status`: name -> rows, version of the source, and why a newer one is refused."""
        return {name: table.describe() for name, table in self._tables.items()}


class _Followed:
    """One reference table."""

    def __init__(self, lake: Lake, name: str, settings: Reference):
        self._name = name
        self._settings = settings
        self._source = SourceTable(replace(lake.address, root=settings.path), settings.key, settings.columns)
        self._snapshots = Snapshots(lake, name, settings)
        self._version: Version | None = None
        self._refused = ""
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None

    def _load(self) -> Version:
        self._version = self._snapshots.newest()
        self._look()
        if self._version is None:
            raise ConfigurationError(one_line(f"reference.{self._name}: {self._settings.path}: {self._refused}"))
        return self._version

    def current(self) -> Version:
        if self._version is None:
            return self._load()
        age = time.monotonic() - self._looked_at
        if age >= self._settings.refresh_s and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look, name=f"reference {self._name}", daemon=True)
            self._thread.start()
            if age >= 2 * self._settings.refresh_s:
                self._thread.join(WAIT_S)
        return self._version

    def describe(self) -> dict[str, Any]:
        version = self._version
        return {
            "rows": version.rows if version else 0,
            "version": version.source if version else None,
            "refused": self._refused or None,
        }

    def _look(self) -> None:
        """Take the version over that the table has now, if it is another one and can be joined.

        Raises:
            StoreError: the object store does not answer, and there is no version to go on with.
        """
        try:
            source = self._source.version()
            if self._version is None or source != self._version.source:
                self._read(source)
            self._refused = ""
        except ReferenceRefused as error:
            self._refuse(str(error))
        except StoreError as error:
            if self._version is None:
                raise
            self._refuse(str(error))
        except OSError as error:
            self._refuse(f"its copy cannot be written ({error.strerror})")
        finally:
            self._looked_at = time.monotonic()

    def _read(self, source: str) -> None:
        table = self._source.read()
        self._check_types(table)
        found = self._snapshots.keep(table, source)
        if self._version is None or found.content != self._version.content:
            log.info("reference table read", reference=self._name, rows=found.rows, version=source)
        self._version = found

    def _check_types(self, table: pa.Table) -> None:
        """Silver has the columns by now, and a column keeps its type."""
        if self._version is None:
            return
        for name, new in [(self._settings.key, KEY), *self._settings.renamed.items()]:
            before, now = self._version.schema.field(new).type, table.schema.field(name).type
            if before != now:
                raise ReferenceRefused(
                    f"its column {name} is {now} now, and was {before}: set another prefix to take it"
                )

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            log.warning("reference table refused", reference=self._name, path=self._settings.path, reason=why)
        self._refused = why
