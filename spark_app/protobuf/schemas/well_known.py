"""Proto files that schemas import without registering them: Google's, which come with protoc, and Confluent's.

These files are always used, even if a registry has other files with their names: column types depend on their messages.

protovalidate's `buf/validate/validate.proto` is different: it only adds options, and has many versions. A registered
version is preferred; the bundled one (protovalidate 1.2.2, Apache-2.0) is for schemas that import it without
registering it.
"""

from __future__ import annotations

import functools
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto


@functools.cache
def google_folders() -> dict[str, Path]:
    """Import path -> folder of Google's .proto files."""
    import google.type
    import grpc_tools

    protobuf = Path(grpc_tools.__path__[0]) / "_proto" / "google" / "protobuf"
    return {"google/protobuf": protobuf, "google/type": Path(google.type.__path__[0])}


@functools.cache
def confluent_files() -> dict[str, FileDescriptorProto]:
    """Import name -> compiled file. Confluent's client contains no .proto text of these files."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as older_pb2

    modules = (meta_pb2, decimal_pb2, variant_pb2, older_pb2)
    files = [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in modules]
    return {file.name: file for file in files}


@functools.cache
def spare_files() -> dict[str, Path]:
    """Import name -> bundled .proto file, for schemas that import it without a schema reference."""
    name = "buf/validate/validate.proto"
    return {name: Path(__file__).with_name("buf") / "validate" / "validate.proto"}


def is_well_known(name: str) -> bool:
    """Whether an import name is one of Google's or Confluent's files. The name must be a plain relative path."""
    folder, _, file = name.rpartition("/")
    return name in confluent_files() or (folder in google_folders() and (google_folders()[folder] / file).is_file())
