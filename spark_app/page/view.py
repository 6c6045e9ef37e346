"""What a view is to the rest of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Show = Callable[..., None]
Job = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class View:
    """One kind of address. What it needs is imported by functions, so that a process loads the job that it does, and no
    view and no other job.

    Attributes:
        path: its parts in braces are arguments of `show`. A view without such parts stands in the bar.
        show: gives the function that draws the view, which is called with the `PageContext`.
        jobs: name -> what gives the function that a process of its own calls with the lake, the settings and the
            arguments of `PageContext.ask`.
    """

    path: str
    title: str
    show: Callable[[], Show]
    jobs: Mapping[str, Callable[[], Job]] = field(default_factory=dict)

    @property
    def is_in_bar(self) -> bool:
        return "{" not in self.path
