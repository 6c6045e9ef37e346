"""What the app does and has done."""

from spark_app.page.view import Job, Show, View


def _show() -> Show:
    from spark_app.page.views.runs.view import show

    return show


def _history() -> Job:
    from spark_app.page.views.runs.jobs import run_history

    return run_history


VIEW = View("/runs", "Runs", _show, {"runs": _history})
