"""The policies for changes of a schema, as the settings name them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from spark_app.model.schema_findings import NEW_NAME, NEW_TYPE, Kind, Policy


def _check(changes: dict[Kind, Policy]) -> dict[Kind, Policy]:
    for kind, policy in changes.items():
        if policy == "alias" and kind != "rename":
            raise ValueError(f"{kind}: only a rename can be an alias, because any other field is not the same one")
        if policy == "new_column" and kind not in NEW_NAME | NEW_TYPE:
            raise ValueError(f"{kind}: it changes neither the name nor the type of a column, so there is no new column")
    return changes


Changes = Annotated[dict[Kind, Policy], AfterValidator(_check)]
