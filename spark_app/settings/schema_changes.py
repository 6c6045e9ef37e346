"""The policies for changes of a schema, as the settings name them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from spark_app.model.schema_findings import Kind, Policy, suited


def _check(changes: dict[Kind, Policy]) -> dict[Kind, Policy]:
    for kind, policy in changes.items():
        if suited(kind, policy) != policy:
            raise ValueError(f"{kind} = {policy}: alias is for a rename, and new_column for a change of name or type")
    return changes


Changes = Annotated[dict[Kind, Policy], AfterValidator(_check)]
