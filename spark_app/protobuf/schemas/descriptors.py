"""Compiles a schema's sources to one FileDescriptorSet, with protoc in a child process with limits.

No code is generated or executed: in generated Python, an import name could inject code into an import line. No name
from outside is used as a path: protoc gets a map from import names to numbered files. Files that the registry has
compiled are passed to protoc together with the texts, so that each file may import any other. protoc accepts a map
entry in a descriptor only with its own name for it, `ItemsEntry` for the field `items`; Confluent's registry compiles
`map<>` text to entries named `itemsEntry`, which are renamed.

Comments become comments of tables and columns. Only a leading comment counts: the one directly before a message or a
field. A comment may come from anybody, so it is data: one line of limited length without control characters, which no
log line contains.

The reasons: docs/decisions/compile.md.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from spark_app.protobuf.decode.google_parser import load_files, own_file
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits, SchemaLookupError, check_name
from spark_app.protobuf.schemas.protoc import BROKEN, REFUSED
from spark_app.protobuf.schemas.registry import ROOT, Sources
from spark_app.protobuf.schemas.well_known import confluent_files, google_folders, is_well_known, spare_files

LONGEST = 4_000  # characters of a comment
MOST_READ = 10 * LONGEST  # characters of a comment that are looked at
JOINERS = "\u200c\u200d"  # not printable by themselves, but they shape the letters of some scripts, and emojis
FIELD = DescriptorProto.FIELD_FIELD_NUMBER


def take_comments(files: FileDescriptorSet) -> dict[str, str]:
    """Remove the source info from the files; returns full name -> comment of the messages and fields that have one."""
    found: dict[str, str] = {}
    for file in files.file:
        for location in file.source_code_info.location:
            name = _name_at(file, location.path) if location.leading_comments else ""
            comment = clean(location.leading_comments) if name else ""
            if comment:
                found[name] = comment
        file.ClearField("source_code_info")
    return found


def reachable(comments: dict[str, str], messages: Iterable[Descriptor]) -> dict[str, str]:
    """Those of the comments that belong to the messages, or to messages that these contain, at any depth. Google's own
    messages are left out: almost all of them are one value in a table."""
    seen: set[str] = set()
    left = list(messages)
    while left:
        message = left.pop()
        if message.full_name not in seen and message.file.package != "google.protobuf":
            seen.add(message.full_name)
            left += message.nested_types
            left += [field.message_type for field in message.fields if field.message_type is not None]
    return {name: text for name, text in comments.items() if name in seen or name.rpartition(".")[0] in seen}


def clean(comment: str) -> str:
    """The comment as one line of at most `LONGEST` characters, without control characters and direction marks."""
    words = "".join(filter(_is_kept, comment[:MOST_READ])).split()
    line = " ".join(words)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1].rstrip()}…"


def _is_kept(character: str) -> bool:
    return character.isprintable() or character.isspace() or character in JOINERS


def _name_at(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """The full name of the message or field at a path of the file's source info; "" if something else is there."""
    tags, indexes = list(path[::2]), path[1::2]
    is_field = tags[-1:] == [FIELD]
    levels = tags[:-1] if is_field else tags
    nested = [DescriptorProto.NESTED_TYPE_FIELD_NUMBER] * (len(levels) - 1)
    if len(path) % 2 or not levels or levels != [FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, *nested]:
        return ""
    messages, names = file.message_type, [file.package] if file.package else []
    for index in indexes[: len(levels)]:
        message = messages[index]
        messages, names = message.nested_type, [*names, message.name]
    return ".".join([*names, message.field[indexes[-1]].name] if is_field else names)


def name_entries(file: FileDescriptorProto) -> None:
    """Rename each map entry of the file, in place, as protoc names it."""
    for message in file.message_type:
        _name_within(message, f".{file.package}.{message.name}" if file.package else f".{message.name}")


def _name_within(message: DescriptorProto, path: str) -> None:
    """`path` is the message's full name with a leading dot."""
    for nested in message.nested_type:
        _name_within(nested, f"{path}.{nested.name}")
        if nested.options.map_entry:
            before, full_name = nested.name, f"{path}.{nested.name}"
            for field in message.field:
                if f".{full_name}".endswith(f".{field.type_name}"):  # a serializer may write a relative name
                    nested.name = entry_name(field.name)
                    field.type_name = f"{field.type_name.removesuffix(before)}{nested.name}"


def entry_name(field: str) -> str:
    """protoc's name for the entry of a map field: the first letter and each letter after an underscore become capitals,
    and underscores are removed."""
    return "".join(word[:1].upper() + word[1:] for word in field.split("_")) + "Entry"


def has_entry_and_other(file: FileDescriptorProto) -> bool:
    """Whether some message of the file contains both map entries and other nested messages, at any depth."""
    return any(_has_both(message) for message in file.message_type)


def _has_both(message: DescriptorProto) -> bool:
    kinds = {nested.options.map_entry for nested in message.nested_type}
    return len(kinds) == 2 or any(_has_both(nested) for nested in message.nested_type)


OWN_FILE = "protolake_value.proto"  # file name of the schema itself
OUTPUT_BYTES = 64 << 10  # how much of protoc's output is read: its warnings come before its errors
LOG_MARK = re.compile(r"^(WARNING: All log messages before.*\n|[IWEF]\d{4} [^\]\n]*\] )", re.MULTILINE)
TOO_LARGE = re.compile(rf"\bout\.fds: {re.escape(os.strerror(errno.EFBIG))}")
NO_SPACE = re.compile(rf"^out\.fds: {re.escape(os.strerror(errno.ENOSPC))}", re.MULTILINE)
CHILD = Path(__file__).with_name("protoc.py")


class CompileUnavailable(SchemaLookupError):
    """Compiling failed for a reason of this machine: no free disk space, no new process, or too much other load."""


class CompileTimedOut(CompileUnavailable):
    """protoc reached the wall-clock limit before its CPU limit; another attempt with more time may succeed."""


class ProtocRejected(SchemaInvalid):
    """protoc reported an error in the schema."""


@dataclass(frozen=True)
class Compiled:
    """
    Attributes:
        descriptor_set: a serialized FileDescriptorSet: dependencies first, the schema's own file last.
        comments: full name -> leading comment, of messages and fields of files that are registered as text.
    """

    descriptor_set: bytes
    comments: dict[str, str]


def compile_sources(sources: Sources, caps: SchemaLimits) -> bytes:
    """The descriptor set of `compile_schema`."""
    return compile_schema(sources, caps).descriptor_set


def compile_schema(sources: Sources, caps: SchemaLimits) -> Compiled:
    """
    Raises:
        SchemaInvalid: it does not compile, lacks an import, or exceeds a limit; the text contains protoc's errors.
        CompileUnavailable: this machine could not compile it now.
    """
    _check_names(sources)
    try:
        files = FileDescriptorSet.FromString(_run_protoc(sources, caps))
    except DecodeError as error:
        raise SchemaInvalid(f"its descriptors do not parse: {error}") from None
    comments = take_comments(files)
    _refuse_impostors(files)
    caps.check_file(own_file(files.file))
    descriptor_set: bytes = files.SerializeToString(deterministic=True)
    messages = _link(descriptor_set, caps)
    return Compiled(descriptor_set, reachable(comments, messages))


def digest(descriptor_set: bytes) -> str:
    return hashlib.sha256(descriptor_set).hexdigest()


def _check_names(sources: Sources) -> None:
    if OWN_FILE in sources.names():
        raise SchemaInvalid(f"a reference is named {OWN_FILE}, like the schema itself")
    for name in sources.names() - {ROOT}:
        check_name(name)
    for file in sources.compiled.values():
        for name in file.dependency:
            check_name(name)


def _refuse_impostors(files: FileDescriptorSet) -> None:
    for file in files.file:
        if file.package == "google.protobuf" and not is_well_known(file.name):
            raise SchemaInvalid(f"{_title(file.name)} declares package google.protobuf, which is reserved")


def _link(descriptor_set: bytes, caps: SchemaLimits) -> list[Descriptor]:
    try:
        _, messages = load_files(descriptor_set)
    except (
        Exception
    ) as error:  # the pool raises TypeError, KeyError and more for descriptors that contradict themselves
        raise SchemaInvalid(f"its descriptors do not link: {str(error)[:500]}") from None
    caps.check_messages(messages)
    return messages


def _run_protoc(sources: Sources, caps: SchemaLimits) -> bytes:
    """protoc's output with source info, which has the comments; without it if only then the schema keeps the limits."""
    try:
        return _compile(sources, caps, "--include_source_info")
    except ProtocRejected as error:
        if not TOO_LARGE.search(str(error)):
            raise
    except SchemaInvalid:
        pass
    return _compile(sources, caps)


def _compile(sources: Sources, caps: SchemaLimits, *options: str) -> bytes:
    try:
        with tempfile.TemporaryDirectory(prefix="protolake-protoc-") as name:
            return _compile_in(Path(name), sources, caps, *options)
    except OSError as error:
        raise CompileUnavailable(error.strerror or str(error)) from None


def _compile_in(folder: Path, sources: Sources, caps: SchemaLimits, *more: str) -> bytes:
    # protoc uses the first location with the file: Google's files, the texts, then compiled files, Confluent's first.
    options = [*more, *(f"-I{path}={google}" for path, google in google_folders().items())]
    titles = {}
    for number, (name, text) in enumerate(sources.texts.items()):
        file = f"{number}.proto"
        (folder / file).write_bytes(text.encode())
        titles[file] = _title(name)
        if not is_well_known(name):
            options.append(f"-I{name or OWN_FILE}={file}")
    options += [f"-I{name}={path}" for name, path in spare_files().items() if name not in sources.names()]
    (folder / "in.fds").write_bytes(_compiled_set(sources).SerializePartialToString())
    options.append("--descriptor_set_in=in.fds")
    code = _call_protoc(folder, [*options, "--include_imports", "--descriptor_set_out=out.fds", OWN_FILE], caps)
    if code == 0:
        return (folder / "out.fds").read_bytes()
    raise _refusal(code, _read_output(folder, titles), caps)


def _compiled_set(sources: Sources) -> FileDescriptorSet:
    files = FileDescriptorSet(file=confluent_files().values())
    for name, proto in sources.compiled.items():
        files.file.add().CopyFrom(proto)
        files.file[-1].name = name or OWN_FILE  # a serializer may omit the name
        files.file[-1].ClearField("source_code_info")  # nobody has checked it
        name_entries(files.file[-1])
    return files


def _call_protoc(folder: Path, arguments: list[str], caps: SchemaLimits) -> int:
    limits = [str(ceil(caps.max_compile_cpu_s)), str(caps.max_compile_bytes), str(caps.descriptor_bytes)]
    with (folder / "output").open("wb") as output:  # a file, because the limit on file size does not apply to a pipe
        process = subprocess.Popen(
            [sys.executable, "-I", str(CHILD), *limits, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={},
            start_new_session=True,
        )
    try:
        return process.wait(caps.compile_clock_s)
    except subprocess.TimeoutExpired:
        raise CompileTimedOut(f"protoc took more than {caps.compile_clock_s:g} s of wall-clock time") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_output(folder: Path, titles: dict[str, str]) -> str:
    """protoc's output, at most `OUTPUT_BYTES`, without log prefixes, and with import names instead of file numbers."""
    with (folder / "output").open("rb") as output:
        text = LOG_MARK.sub("", output.read(OUTPUT_BYTES).decode(errors="replace")).strip()
    return re.sub(r"^(\d+\.proto)(?=:)", lambda match: titles.get(match[1], match[1]), text, flags=re.MULTILINE)


def _refusal(code: int, output: str, caps: SchemaLimits) -> Exception:
    if code == BROKEN or NO_SPACE.search(output):
        return CompileUnavailable(f"protoc could not run: {output[-500:]}")
    if code == -signal.SIGKILL:
        return CompileUnavailable("protoc was killed: this machine may be short of memory")
    if code == -signal.SIGXCPU:
        return SchemaInvalid(f"protoc took more than {caps.max_compile_cpu_s:g} s of CPU")
    if code == REFUSED:
        return ProtocRejected(f"protoc: {output[:500]}")
    return SchemaInvalid(f"protoc exited with {code}, it may have needed more than {caps.max_compile_bytes} bytes")


def _title(name: str) -> str:
    return name if name not in (ROOT, OWN_FILE) else "schema"
