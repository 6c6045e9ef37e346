"""The comments of a .proto file that become comments of tables and columns.

Only a leading comment counts: the one directly before a message or a field. A comment may come from anybody, so it is
data: one line of limited length without control characters, which no log line contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

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
    tags, places = list(path[::2]), path[1::2]
    is_field = tags[-1:] == [FIELD]
    levels = tags[:-1] if is_field else tags
    nested = [DescriptorProto.NESTED_TYPE_FIELD_NUMBER] * (len(levels) - 1)
    if len(path) % 2 or not levels or levels != [FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, *nested]:
        return ""
    messages, names = file.message_type, [file.package] if file.package else []
    for place in places[: len(levels)]:
        message = messages[place]
        messages, names = message.nested_type, [*names, message.name]
    return ".".join([*names, message.field[places[-1]].name] if is_field else names)
