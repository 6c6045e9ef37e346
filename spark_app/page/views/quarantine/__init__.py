"""The records that could not be placed, each with its bytes, and their replay."""

from spark_app.page.view import Job, Show, View


def _show() -> Show:
    from spark_app.page.views.quarantine.view import show

    return show


def _history() -> Job:
    from spark_app.page.views.quarantine.jobs import history

    return history


def _open_records() -> Job:
    from spark_app.page.views.quarantine.jobs import open_records

    return open_records


def _record() -> Job:
    from spark_app.page.views.quarantine.record import record_detail

    return record_detail


VIEW = View(
    "/quarantine",
    "Quarantine",
    _show,
    {"quarantine_history": _history, "open_records": _open_records, "record_detail": _record},
)
