"""Comments of a table and its columns, as readers of the table see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The names from a table's column to a field inside it; structs in lists and in map values add no name of their own.
# The empty path is the table.
Path = tuple[str, ...]


@dataclass(frozen=True)
class Comments:
    """The comments for one table. Paths that the table does not have do no harm.

    Attributes:
        authored: from .proto files; they replace the comments that are there.
        own: the app's; they count only where there is no comment.
        made: the columns, casefolded, that may not be as they were sent: no comment of before is true of them.
    """

    authored: Mapping[Path, str] = field(default_factory=dict)
    own: Mapping[Path, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()


NO_COMMENTS = Comments()
