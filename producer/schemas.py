"""Compiles schema versions. Input: `proto/v<N>/game_event.proto`. Output: a message class and its form for the
registry.

Each version has its own descriptor pool, because all versions share one file name and one message name. No Python is
generated or imported: protoc writes a descriptor set, and the pool reads it.
"""

import tempfile
from base64 import b64encode
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from producer.errors import ConfigurationError

PROTO_FOLDER = Path(__file__).parent.parent / "proto"
FILE_NAME = "game_event.proto"
MESSAGE_NAME = "protolake.demo.GameEvent"


@dataclass(frozen=True)
class SchemaVersion:
    """One compiled version: its number, its message class, the number of its custom columns, and its .proto text."""

    number: int
    message: type[Message]
    custom: int
    text: str

    @property
    def registry_form(self) -> Schema:
        """The form that is registered: the text, because a descriptor has no comments."""
        return Schema(self.text, "PROTOBUF", [])

    @property
    def descriptor_form(self) -> Schema:
        """The form that earlier releases registered, and that the official serializer looks up: the file's descriptor
        in base64."""
        return Schema(b64encode(self.message.DESCRIPTOR.file.serialized_pb).decode("ascii"), "PROTOBUF", [])


def look_up(client: SchemaRegistryClient, subject: str, version: SchemaVersion) -> RegisteredSchema | None:
    """The version as it is registered under the subject, in either form; None = it is not registered.

    Raises SchemaRegistryError if the registry answers anything else.
    """
    for form in (version.registry_form, version.descriptor_form):
        try:
            return client.lookup_schema(subject, form)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
    return None


def available_versions(folder: Path) -> list[int]:
    """The version numbers that have a folder `v<N>`, ascending."""
    names = (path.parent.name for path in folder.glob(f"v*/{FILE_NAME}"))
    return sorted(int(name[1:]) for name in names if name[1:].isdecimal())


def compile_version(number: int, folder: Path = PROTO_FOLDER) -> SchemaVersion:
    """Compile one version. Raises ConfigurationError if protoc rejects the file (protoc prints the reason on
    stderr)."""
    pool = DescriptorPool()
    for file in run_protoc(folder / f"v{number}").file:
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(MESSAGE_NAME)
    custom = sum(field.name.startswith("col_custom_") for field in descriptor.fields)
    text = (folder / f"v{number}" / FILE_NAME).read_text(encoding="utf-8")
    return SchemaVersion(number, GetMessageClass(descriptor), custom, text)


def run_protoc(folder: Path) -> FileDescriptorSet:
    """The descriptor set of one version's file with everything it imports."""
    with tempfile.TemporaryDirectory() as scratch, as_file(files("grpc_tools") / "_proto") as well_known:
        output = Path(scratch) / "descriptors"
        arguments = [f"-I{folder}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={output}", FILE_NAME]
        if protoc.main(["protoc", *arguments]) != 0:
            raise ConfigurationError(f"PRODUCER_PROTO: {folder / FILE_NAME} does not compile, see the lines above")
        compiled = FileDescriptorSet()
        compiled.ParseFromString(output.read_bytes())
        return compiled
