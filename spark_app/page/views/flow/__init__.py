"""The way of the records, from the topics to gold."""

from spark_app.page.view import Show, View


def _show() -> Show:
    from spark_app.page.views.flow.view import show

    return show


VIEW = View("/", "Flow", _show)
