"""Says what a lake would do with a schema that nobody has registered yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_app.model.catalog import Decodable
from spark_app.model.causes import Cause
from spark_app.model.errors import UsageError
from spark_app.model.schema_changes import SchemaChange
from spark_app.model.text import one_line
from spark_app.protobuf.changes.comparison import mark_readded
from spark_app.protobuf.changes.decisions import decided
from spark_app.protobuf.changes.differences import Version, differences
from spark_app.protobuf.changes.outcomes import Judgement, schema_changes_of
from spark_app.protobuf.schemas.descriptors import compile_sources, digest
from spark_app.protobuf.schemas.ledger import Entry, Ledger, message_types
from spark_app.protobuf.schemas.ledger_text import schema_change_lines
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits, check_name
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.protobuf.schemas.resolver import limits_of, subjects_of
from spark_app.protobuf.schemas.well_known import is_well_known
from spark_app.settings.connections import name_in_context
from spark_app.settings.models import Settings

IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """
    Attributes:
        before_version: the version that the schema was compared with; None = the lake knows none of the subject.
        before_schema: its id or GUID.
        refused: why the lake would refuse the schema; "" = it would not.
    """

    subject: str
    before_version: int | None = None
    before_schema: int | str | None = None
    findings: tuple[SchemaChange, ...] = ()
    refused: str = ""

    @property
    def warns(self) -> bool:
        return bool(self.refused) or any(change.severity == "warning" for change in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "warns": self.warns}


def check(ledger: Ledger, settings: Settings, file: Path, subject: str = "", imports: Path | None = None) -> Verdict:
    """Compare a .proto file with the newest version of its subject that the lake knows.

    Args:
        subject: "" = that of the values.
        imports: the folder of imported files, instead of that of the file. What it has not is taken from the version
            that the file is compared with.

    Raises:
        UsageError: the file cannot be read.
        CompileUnavailable: this machine could not compile it now.
    """
    subject = name_in_context(subject or settings.subjects[0])
    versions = _versions(ledger, subject, subject in map(name_in_context, settings.subjects))
    number = max(versions, default=None)
    before = None if number is None else versions[number]
    old = None if before is None else ledger.version(before)
    key = None if before is None else before.key
    try:
        new = _compile(file, imports or file.parent, old.registered if old else b"", limits_of(settings.schemas))
    except SchemaInvalid as error:
        return Verdict(subject, number, key, refused=str(error))
    if old is None:
        return Verdict(subject)
    earlier = [ledger.decoded_set(entry) for version, entry in versions.items() if version != number]
    judgement = Judgement.of(settings)
    decoded = decided(new, old, earlier, judgement)
    known, _ = message_types([*ledger.catalog().decodable.values(), Decodable(str(file), decoded, digest(decoded))])
    changes = mark_readded(differences(old, Version(new, decoded)), earlier)
    of_keys = subjects_of(settings).is_of_keys(subject)
    return Verdict(subject, number, key, tuple(schema_changes_of(changes, known, judgement, of_keys)))


def verdict_lines(verdict: Verdict, file: Path) -> list[str]:
    """The verdict as text."""
    if verdict.refused:
        why = (f"    {one_line(line)}" for line in verdict.refused.splitlines())
        return [f"{file} is refused, and its records go to quarantine as {Cause.SCHEMA_INVALID.value}:", *why]
    if verdict.before_version is None:
        return [f"{file} is the first version of {verdict.subject} that the lake knows: there is nothing to compare"]
    lines = [
        f"{file} compared with v{verdict.before_version} of {verdict.subject}, schema {verdict.before_schema}",
        *schema_change_lines(verdict.findings),
    ]
    return lines if verdict.findings else [*lines, "    no differences"]


def _versions(ledger: Ledger, subject: str, configured: bool) -> dict[int, Entry]:
    """Version -> decodable schema of the subject. Entries of an earlier release have a version only in a configured
    subject, and do not say in which."""
    found = {}
    for entry in ledger.entries.values():
        version = entry.subjects.get(subject)
        if version is None and configured and entry.comparison is None:
            version = entry.version
        if version is not None and entry.outcome == "decodable":
            found[version] = entry
    return found


def _compile(file: Path, folder: Path, old: bytes, caps: SchemaLimits) -> bytes:
    sources = Sources()
    left = [(ROOT, file)]
    while left:
        name, path = left.pop()
        text = _read(path)
        size = len(text.encode())
        caps.check_source(sources, name, size)
        sources.texts[name] = text
        sources.size += size
        left += [(one, folder / one) for one in _imports(text) if one not in sources.texts and (folder / one).is_file()]
    for known in FileDescriptorSet.FromString(old).file[:-1]:
        if known.name not in sources.texts and not is_well_known(known.name):
            sources.compiled[known.name] = known
    return compile_sources(sources, caps)


def _imports(text: str) -> Iterator[str]:
    """The names of imports that need a file."""
    for name in IMPORT.findall(text):
        check_name(name)
        if not is_well_known(name):
            yield name


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SchemaInvalid(f"{path} is not Unicode text") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
