"""Read-only SQL over the tables of the lake."""

from spark_app.page.view import Job, Show, View


def _show() -> Show:
    from spark_app.page.views.query.view import show

    return show


def _query() -> Job:
    from spark_app.page.views.query.jobs import one_query

    return one_query


VIEW = View("/query", "Query", _show, {"query": _query})
