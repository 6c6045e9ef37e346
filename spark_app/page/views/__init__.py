"""The views of the page, in the order in which they stand in the bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """
    Attributes:
        path: its parts in braces are arguments of what draws it. A view without such parts stands in the bar.
    """

    path: str
    title: str

    @property
    def is_in_bar(self) -> bool:
        return "{" not in self.path

    def is_open_to(self, sees_all: bool, may_query: bool) -> bool:
        """Whether a user may open it, who sees everything or not."""
        return may_query if self.title == "Query" else sees_all

    def load(self) -> Callable[..., None]:
        """What draws the view, which is called with the `PageContext`. It is imported here, because a process that only
        lists the views needs no NiceGUI."""
        show: Callable[..., None]
        match self.title:
            case "Flow":
                from spark_app.page.views.flow import show
            case "Quarantine":
                from spark_app.page.views.quarantine.view import show
            case "Schemas":
                from spark_app.page.views.schemas.view import show_list as show
            case "Schema":
                from spark_app.page.views.schemas.view import show_one as show
            case "Runs":
                from spark_app.page.views.runs.view import show
            case "Query":
                from spark_app.page.views.query.view import show
            case "Table":
                from spark_app.page.views.table.view import show
        return show


VIEWS = (
    View("/", "Flow"),
    View("/quarantine", "Quarantine"),
    View("/schemas", "Schemas"),
    View("/schemas/{schema}", "Schema"),
    View("/runs", "Runs"),
    View("/query", "Query"),
    View("/tables/{table:path}", "Table"),
)
