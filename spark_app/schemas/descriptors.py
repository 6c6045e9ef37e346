"""Sources to one FileDescriptorSet: compiled by protoc in a child process with limits, never executed.

protoc writes descriptors only. Generating Python and importing it would run whatever a reference name smuggles into an
import line.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from spark_app.schemas.caps import IMPORT_NAME, Caps, SchemaRefused
from spark_app.schemas.registry import ROOT, Sources
from spark_app.worker.decode.reference import load_files

CLASHES = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
OWN_FILE = "protolake_value.proto"  # what the schema itself is called among its files


class CompileFailed(Exception):
    """Says nothing about the schema: no space left, no process to be had."""


def compile_sources(sources: Sources, caps: Caps) -> bytes:
    """A serialized FileDescriptorSet: dependencies first, the schema's own file last.

    Raises:
        SchemaRefused: it does not compile, lacks an import, or is over a cap; the text holds protoc's words.
        CompileFailed: this machine could not compile it now.
    """
    sources = _without_well_known(sources)
    files = dict(_run_protoc(sources, caps)) if sources.texts else {}
    files |= {name or OWN_FILE: proto for name, proto in sources.compiled.items()}
    _refuse_impostors(files)
    own = FileDescriptorProto()
    own.CopyFrom(files[OWN_FILE])
    own.name = OWN_FILE
    files[OWN_FILE] = own
    ordered = FileDescriptorSet(file=_in_order(OWN_FILE, files, caps))
    descriptor_set: bytes = ordered.SerializeToString(deterministic=True)
    _check(descriptor_set, caps)
    return descriptor_set


def _without_well_known(sources: Sources) -> Sources:
    """Well-known imports are always protoc's own files: the column types rely on what their messages are."""
    if OWN_FILE in sources.names():
        raise SchemaRefused(f"a reference is named {OWN_FILE}, as the schema itself is")
    texts = {name: text for name, text in sources.texts.items() if not _is_well_known(name)}
    compiled = {name: proto for name, proto in sources.compiled.items() if not _is_well_known(name)}
    return Sources(sources.size, texts, compiled)


def _refuse_impostors(files: dict[str, FileDescriptorProto]) -> None:
    for name, proto in files.items():
        if proto.package == "google.protobuf" and not _is_well_known(name):
            raise SchemaRefused(f"{name} declares package google.protobuf, which is not its own")


def digest(descriptor_set: bytes) -> str:
    return hashlib.sha256(descriptor_set).hexdigest()


def _check(descriptor_set: bytes, caps: Caps) -> None:
    try:
        _, messages = load_files(descriptor_set)
    except (
        Exception
    ) as error:  # the pool raises TypeError, KeyError and more for descriptors that contradict themselves
        raise SchemaRefused(f"its descriptors do not link: {error}") from None
    for message in messages:
        caps.check_message(message)


def _run_protoc(sources: Sources, caps: Caps) -> list[tuple[str, FileDescriptorProto]]:
    with tempfile.TemporaryDirectory(prefix="protolake-protoc-") as folder:
        root = Path(folder) / "in"
        for name, text in sources.texts.items():
            _write_source(root, name or OWN_FILE, text)
        for name in sources.compiled:
            raise SchemaRefused(f"reference {name} is registered in base64, but the schema that imports it is text")
        out = Path(folder) / "out.fds"
        names = [name or OWN_FILE for name in sources.texts]
        _call_protoc(root, out, names, caps)
        return [(file.name, file) for file in FileDescriptorSet.FromString(out.read_bytes()).file]


def _write_source(root: Path, name: str, text: str) -> None:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        if error.errno not in CLASHES:
            raise CompileFailed(str(error)) from None
        raise SchemaRefused(f"reference name {name!r} clashes with another ({error.strerror})") from None


def _call_protoc(root: Path, out: Path, names: list[str], caps: Caps) -> None:
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", f"-I{root}"]
    command += [f"-I{folder}" for folder in _include_folders()]
    command += ["--include_imports", f"--descriptor_set_out={out}", *names]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(caps.compile_s) + 1, int(caps.compile_s) + 1))
        if sys.platform == "linux":  # macOS refuses to start anything under an address space limit
            resource.setrlimit(resource.RLIMIT_AS, (caps.compile_bytes, caps.compile_bytes))

    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=caps.compile_s, preexec_fn=limit, env={}
        )
    except subprocess.TimeoutExpired:
        raise SchemaRefused(f"protoc took more than {caps.compile_s:g} s") from None
    except OSError as error:
        raise CompileFailed(str(error)) from None
    if os.strerror(errno.ENOSPC) in result.stderr:
        raise CompileFailed(result.stderr.strip()[:500])
    if result.returncode != 0:
        raise SchemaRefused(f"protoc: {result.stderr.strip()[:500] or f'ended with {result.returncode}'}")


@functools.cache
def _include_folders() -> list[Path]:
    """Where protoc finds what nobody registers: google/protobuf and google/type."""
    import google.type
    import grpc_tools

    return [Path(grpc_tools.__path__[0]) / "_proto", Path(google.type.__path__[0]).parents[1]]


def _in_order(name: str, files: dict[str, FileDescriptorProto], caps: Caps) -> list[FileDescriptorProto]:
    """The file after everything it imports."""
    ordered: dict[str, FileDescriptorProto] = {}

    def visit(current: str, above: tuple[str, ...]) -> None:
        if current in ordered:
            return
        if current in above:
            raise SchemaRefused(f"import cycle: {' -> '.join((*above, current))}")
        proto = files.get(current) or _well_known(current, caps)
        if proto is None:
            raise SchemaRefused(f"import {current} is neither a reference of the schema nor well known")
        for dependency in proto.dependency:
            visit(dependency, (*above, current))
        ordered[current] = proto

    visit(name, ())
    return list(ordered.values())


def _well_known(name: str, caps: Caps) -> FileDescriptorProto | None:
    """A file that serializers do not register because every protoc has it, such as google/protobuf/timestamp.proto."""
    return _compile_well_known(name, caps) if _is_well_known(name) else None


@functools.cache
def _is_well_known(name: str) -> bool:
    return bool(IMPORT_NAME.fullmatch(name)) and any((folder / name).is_file() for folder in _include_folders())


@functools.cache
def _compile_well_known(name: str, caps: Caps) -> FileDescriptorProto:
    text = f'syntax = "proto3"; import "{name}";'
    return dict(_run_protoc(Sources(texts={ROOT: text}), caps))[name]
