"""Reads the settings from a TOML file and environment variables, and prints them.

`PROTOLAKE_<SECTION>__<KEY>` overrides the file. Unknown keys are errors in both.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError

from spark_app.model.errors import ConfigurationError
from spark_app.model.text import near
from spark_app.settings import renamed
from spark_app.settings.connections import Section
from spark_app.settings.models import PREFIX, ExpectationSettings, Settings
from spark_app.settings.renamed import RENAMED, Found
from spark_app.settings.serving import User
from spark_app.settings.silver import Reference
from spark_app.settings.sinks import SinkSettings

# The sections with a table for each name: its model, a name with values, and the page about it.
NAMED: dict[str, tuple[type[Section], str, dict[str, Any], str]] = {
    "expectations": (
        ExpectationSettings,
        "positive_bet",
        {"check": "bet > 0", "action": "quarantine", "tables": ("rummy",), "description": "no bet is free"},
        "expectations.md",
    ),
    "reference": (
        Reference,
        "players",
        {"path": "/data/players", "key": "gamer_id", "columns": ("country", "tier")},
        "references.md",
    ),
    "sinks": (
        SinkSettings,
        "crm",
        {"tables": ("rummy",), "where": "bet > 100", "rest": {"url": "https://api.example/{name}"}},
        "sinks.md",
    ),
    "users": (
        User,
        "ann",
        {"password_file": "/run/secrets/ann", "tables": ("gold_*", "leader_board"), "hide": ("email",)},
        "bi.md",
    ),
}

WITH_ADDRESSES = {"registry.url", "kafka.oauth_token_url", "alerts", "alerts.webhook"}  # which may contain a password


def load(
    path: str | Path | None = None,
    on_renamed: Callable[[Found], None] = lambda found: None,
    base: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Settings:
    """The settings from `path` (TOML; None = defaults) and the environment.

    Args:
        on_renamed: called with the old names in use, if there are any.
        base: section -> values of settings that neither the file nor the environment names.

    Raises:
        ConfigurationError: a key or value is not valid; the text names the key.
    """
    path = path or os.environ.get(f"{PREFIX}SETTINGS")
    values, found = renamed.in_file(_read(Path(path)) if path else {})
    found |= renamed.in_environment({name.lower(): text for name, text in os.environ.items()}, PREFIX)[1]
    for section in values:
        if section not in Settings.model_fields:
            raise ConfigurationError(f"{section}: no such section in {path}; {near(section, Settings.model_fields, 1)}")
    _refuse_unknown_variables()
    for section, given in base.items():
        own = values.get(section, {})
        values[section] = {**given, **own} if isinstance(own, dict) else own
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_explain(item, found) for item in error.errors())) from None
    except Exception as error:  # an environment variable for a list or table whose value is not JSON
        raise ConfigurationError(f"{_no_json() or 'environment'}: {error}") from None
    if found:
        on_renamed(found)
    return settings


def should_hold(path: str | Path | None) -> bool:
    """Read `run.hold` even if another setting is invalid, so that an invalid setting also holds the app."""
    path = path or os.environ.get(f"{PREFIX}SETTINGS")
    name = f"{PREFIX}run__hold".upper()
    try:
        filed = _read(Path(path)).get("run", {}).get("hold", False) if path else False
        value = next((value for key, value in os.environ.items() if key.upper() == name), filed)
        return TypeAdapter(bool).validate_python(value)
    except (ConfigurationError, ValidationError, AttributeError):
        return False


def _no_json() -> str | None:
    """A message, with an example, about the first variable that must be JSON but is not; None if there is none."""
    for name, example in _json_variables():
        value = os.environ.get(name.upper())
        if value is not None:
            try:
                json.loads(value)
            except (ValueError, RecursionError):
                return f"{name.upper()} must be JSON, such as {example}"
    return None


def _json_variables() -> Iterator[tuple[str, str]]:
    """(variable, example) for each variable that must be JSON."""
    examples = {tuple: '["a", "b"]', dict: '{"a": {"function": "count"}}'}
    for section, model in sections().items():
        kinds = {f"{PREFIX}{section}__{key}": type(field.default) for key, field in model.model_fields.items()}
        olds = {
            f"{PREFIX}{section}__{old}": kinds[f"{PREFIX}{section}__{new}"]
            for old, new in RENAMED.get(section, {}).items()
        }
        for name, kind in {f"{PREFIX}{section}": dict, **kinds, **olds}.items():
            if kind in examples:
                yield name, examples[kind]
    for section, (model, name, values, _) in NAMED.items():
        variable = f"{PREFIX}{section}".upper()
        yield variable, json.dumps({name: values})
        fields = model.model_fields.items()
        lists = tuple(f"__{key}".upper() for key, field in fields if get_origin(field.annotation) is tuple)
        for given in os.environ:
            if given.upper().startswith(f"{variable}__") and given.upper().endswith(lists):
                yield given, examples[tuple]


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"settings file {path}: {error.strerror}") from None
    except ValueError as error:  # also for text that is not UTF-8, and for a number with too many digits
        raise ConfigurationError(f"settings file {path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"settings file {path}: {_deepest_line(text)} is nested too deeply") from None


def _deepest_line(text: str) -> str:
    """The first 40 characters of the line with the most brackets; they contain the key."""
    line = max(text.splitlines(), key=lambda line: line.count("[") + line.count("{"))
    return f"{line.strip()[:40]} ..."


def _refuse_unknown_variables() -> None:
    known = {f"{PREFIX}SETTINGS", *(f"{PREFIX}{section}".upper() for section in NAMED)} | {
        f"{PREFIX}{section}__{key}".upper()
        for section, model in sections().items()
        for key in (*model.model_fields, *RENAMED.get(section, {}))
    }
    starts = tuple(f"{PREFIX}{section}_".upper() for section in Settings.model_fields)
    ours = [n for n in os.environ if n.upper().startswith(starts) or (n.upper().startswith(PREFIX) and "__" in n)]
    for name in ours:
        if not any(name.upper() == k or name.upper().startswith(f"{k}__") for k in known):
            raise ConfigurationError(f"{name}: no such setting; {near(name.upper(), known, 1)}")


def sections() -> dict[str, type[Section]]:
    """Section name -> its model, in the order of the settings file. Rules and reference tables are none: each has a
    table of its own."""
    fields = Settings.model_fields.items()
    return {name: field.annotation for name, field in fields if isinstance(field.annotation, type)}


def _explain(error: Any, found: Found) -> str:
    location = error["loc"][:-2] if error["loc"][-1:] == ("[key]",) else error["loc"]  # a name that is not valid
    key = ".".join(str(part)[:64] for part in location) or "settings"
    old = next((f" (given as {old})" for old, new in found.items() if new == key), "")
    if error["type"] == "extra_forbidden":
        named = NAMED.get(str(location[0])) if len(location) > 2 else None
        own = [f"{location[0]}.{location[1]}.{field}" for field in named[0].model_fields] if named else []
        known = [f"{section}.{name}" for section, model in sections().items() for name in model.model_fields]
        return f"{key}: no such setting; {near(key, [*known, *own], 1)}"
    got = "" if key in WITH_ADDRESSES else f", got {_start(error['input'])!r}"
    return f"{key}{old}: {error['msg']}{got}"


def _start(value: Any) -> str:
    try:
        return str(value)[:100]
    except RecursionError:
        return "a value that is nested too deeply"


def read_secret(path: str, key: str) -> str:
    """The content of a secret file without its last newline.

    Raises:
        ConfigurationError: the file named by setting `key` cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigurationError(f"{key}: cannot read {path} ({error.strerror})") from None
    except UnicodeDecodeError:  # its message contains a byte of the secret
        raise ConfigurationError(f"{key}: {path} is not UTF-8 text") from None


def render() -> str:
    """All settings with their help and defaults, as the TOML file `docs/settings.toml`."""
    lines = [
        "# All settings of the Spark app with their defaults, which fit the demo. Copy those that you change into",
        "# your own file and pass it with --settings; the variable PROTOLAKE_<SECTION>__<KEY> overrides the file.",
        "# Generated by `protolake settings --defaults`.",
    ]
    for name in Settings.model_fields:
        lines += ["", *(_section(name, sections()[name]) if name in sections() else _example(name))]
    return "\n".join(lines) + "\n"


def _section(name: str, model: type[Section]) -> list[str]:
    lines = [f"# {model.__doc__}", f"[{name}]"]
    return lines + [
        f"{key} = {_toml(field.default)}  # {field.description}" for key, field in model.model_fields.items()
    ]


def _example(section: str) -> list[str]:
    """Comments alone: there is none by default."""
    model, name, values, page = NAMED[section]
    lines = [model.__doc__ or "", f"Each has a table of this form, with a name of its own; see {page}.", ""]
    lines += [f"[{section}.{name}]"]
    for key, field in model.model_fields.items():
        given = values.get(key, field.default)
        lines.append(f"{field.alias or key} = {_toml(given)}  # {field.description}")
    return [f"# {line}".rstrip() for line in lines]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Section):
        return _toml({k: v for k, v in value.model_dump().items() if v != ""})
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return str(value)
