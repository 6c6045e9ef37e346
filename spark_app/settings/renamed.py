"""Old names of settings. A settings file or environment for an earlier release stays valid.

Names are replaced in each source before the sources are merged. So an old name in the environment overrides the new
name in the file, as every variable does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spark_app.model.errors import ConfigurationError

# Section -> old name -> new name.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "tables": {"cap": "max_tables", "allowed": "allowlist"},
    "schemas": {
        "patience_s": "unknown_id_grace_s",
        "settle_s": "resolve_timeout_s",
        "lookups": "max_unknown_ids_per_batch",
        "compile_s": "max_compile_cpu_s",
        "compile_bytes": "max_compile_bytes",
        "text_bytes": "max_text_bytes",
        "files": "max_files",
        "messages": "max_messages",
        "leaves": "max_columns",
        "all_leaves": "max_total_columns",
    },
    "batch": {
        "records": "max_records",
        "bytes": "max_bytes",
        "arrow_records": "max_arrow_records",
        "arrow_bytes": "max_arrow_bytes",
        "small": "single_task_below",
        "attempts": "max_attempts",
    },
    "lake": {"fresh_log_hours": "log_retention_hours"},
    "run": {"patience_s": "connect_timeout_s"},
}
Found = dict[str, str]  # "section.old" -> "section.new", for each old name in use


def in_file(values: Mapping[str, Any]) -> tuple[dict[str, Any], Found]:
    """(the values of a settings file under the new names, the old names in use).

    Raises:
        ConfigurationError: a setting is given by its old and its new name.
    """
    found: Found = {}
    return {section: _in_section(section, value, found) for section, value in values.items()}, found


def in_environment(variables: Mapping[str, str | None], prefix: str) -> tuple[dict[str, str | None], Found]:
    """(the variables under the new names, the old names in use). All names of variables are in lower case.

    Raises:
        ConfigurationError: a setting is given by its old and its new name.
    """
    found: Found = {}
    names = {
        f"{prefix}{section}__{old}".lower(): (section, old, new)
        for section, pairs in RENAMED.items()
        for old, new in pairs.items()
    }
    renamed: dict[str, str | None] = {}
    for name, value in variables.items():
        if name not in names:
            renamed[name] = value
            continue
        section, old, new = names[name]
        today = f"{prefix}{section}__{new}".lower()
        if today in variables:
            raise _both(f"{section}.{old}", f"{section}.{new}")
        found[f"{section}.{old}"] = f"{section}.{new}"
        renamed[today] = value
    for section in RENAMED:  # a variable may hold a whole section as JSON
        name = f"{prefix}{section}".lower()
        try:
            values = json.loads(renamed.get(name) or "")
        except (ValueError, RecursionError):
            continue  # pydantic reports the error when it reads the variable
        renamed[name] = json.dumps(_in_section(section, values, found))
    return renamed, found


def _in_section(section: str, values: Any, found: Found) -> Any:
    pairs = RENAMED.get(section, {})
    if not isinstance(values, dict):
        return values
    for old in pairs.keys() & values.keys():
        if pairs[old] in values:
            raise _both(f"{section}.{old}", f"{section}.{pairs[old]}")
        found[f"{section}.{old}"] = f"{section}.{pairs[old]}"
    return {pairs.get(key, key): value for key, value in values.items()}


def _both(old: str, new: str) -> ConfigurationError:
    return ConfigurationError(f"{old} is the old name of {new}: set only the new one")
