"""Does one job of a view: `python -m spark_app.page.job`. The process ends with its answer; it may load pyarrow and
DuckDB, and crash."""

from __future__ import annotations

from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ProtolakeError
from spark_app.page.queries.asking import reply
from spark_app.page.views import VIEWS
from spark_app.settings.models import Settings

JOBS = {name: job for view in VIEWS for name, job in view.jobs.items()}


def main() -> None:
    reply(do)


def do(question: dict[str, Any]) -> dict[str, Any]:
    """Do the job; {"failed": why} if it cannot be done."""
    settings = Settings.model_validate_json(question["settings"])
    if question["job"] not in JOBS:
        return {"failed": f"there is no job {question['job']}"}
    try:
        return JOBS[question["job"]]()(Lake(settings.lake_address), settings, **question["arguments"])
    except ProtolakeError as error:
        return {"failed": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    main()
