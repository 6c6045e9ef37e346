"""An entry of the schema ledger."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from spark_app.model.catalog import Form, SchemaKey
from spark_app.model.causes import Cause
from spark_app.model.schema_findings import Kind, Policy

Outcome = Literal["decodable", "refused", "waiting"]


@dataclass(frozen=True)
class Entry:
    """One schema id or GUID.

    Attributes:
        met_at: when it was first seen, seconds since 1970; `schemas.unknown_id_grace_s` counts from here.
        digest: the digest of its descriptor set, if it is decodable or stopped.
        cause, detail: the reason of a refused schema. A waiting schema has only a detail, unless it is paused.
        version: its version in a configured subject, if it has one.
        form: the registered form of the file with its messages, if there is a digest; None = an earlier release added
            the entry.
        comments: the digest of its comments; "" = it has none, or an earlier release added the entry.
        subjects: its version in each of its subjects, as far as they are known; the topics' own come first.
        comparison: the digest of its comparison with the version before; "" = it is not compared yet. None = an earlier
            release added the entry, which is never compared.
        decoded: the digest of its descriptor set with the names of the columns, with which its records are decoded. It
            never changes. "" = all columns have the names of their fields.
        stopped_by: the kinds of changes that kept the schema from being decoded.
        accepted: the policy by which a person decided about these; "" = nobody had to, or has.
    """

    key: SchemaKey
    outcome: Outcome
    met_at: float
    digest: str = ""
    cause: str = ""
    detail: str = ""
    version: int | None = None
    form: Form | None = None
    comments: str = ""
    subjects: Mapping[str, int] = field(default_factory=dict)
    comparison: str | None = None
    decoded: str = ""
    stopped_by: Sequence[Kind] = ()
    accepted: Policy | Literal[""] = ""

    @property
    def is_stopped(self) -> bool:
        """Whether the schema stays as it is until a person decides, because of what it changes."""
        return self.cause == Cause.SCHEMA_CHANGE and not self.accepted

    @property
    def is_paused(self) -> bool:
        """Whether its records wait for a decision."""
        return self.is_stopped and self.outcome == "waiting"

    @functools.cached_property
    def text(self) -> str:
        """The entry as JSON. Cached, because each write of the ledger contains all entries and few have changed."""
        return json.dumps(asdict(self))
