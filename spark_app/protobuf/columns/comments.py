"""Comments of a message's fields as comments of the columns that the fields become, see `typemap`."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor

from spark_app.model.columns import Path
from spark_app.protobuf.columns.fields import column_fields, owner_of


def column_comments(message: Descriptor, comments: Mapping[str, str]) -> dict[Path, str]:
    """Path -> comment for the columns of a message, nested ones included; the empty path has the message's own.

    Args:
        comments: full name of a message or field -> comment.
    """
    found: dict[Path, str] = {(): comments[message.full_name]} if message.full_name in comments else {}
    for path, (*_, field) in column_fields(message):
        comment = comments.get(f"{owner_of(field)}.{field.name}")
        if comment:
            found[path] = comment
    return found
