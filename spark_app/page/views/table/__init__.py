"""One table of the lake."""

from spark_app.page.view import Job, Show, View


def _show() -> Show:
    from spark_app.page.views.table.view import show

    return show


def _facts() -> Job:
    from spark_app.page.views.table.jobs import table_facts

    return table_facts


def _lineage() -> Job:
    from spark_app.page.views.table.lineage import lineage

    return lineage


VIEW = View("/tables/{table:path}", "Table", _show, {"table": _facts, "lineage": _lineage})
