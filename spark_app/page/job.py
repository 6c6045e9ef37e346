"""Does one job of a view: `python -m spark_app.page.job`. The process ends with its result; it may load pyarrow and
DuckDB, and crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ProtolakeError
from spark_app.page.queries.child_process import serve_requests
from spark_app.settings.models import Settings

Job = Callable[..., dict[str, Any]]


def load(name: str) -> Job | None:
    """The function of a job, which is called with the lake, the settings and the arguments of `PageContext.run_job`. A
    process imports its own job only."""
    job: Job
    match name:
        case "quarantine_history":
            from spark_app.page.views.quarantine.jobs import history as job
        case "open_records":
            from spark_app.page.views.quarantine.jobs import open_records as job
        case "record_detail":
            from spark_app.page.views.quarantine.record import record_detail as job
        case "schemas":
            from spark_app.page.views.schemas.jobs import known_schemas as job
        case "schema":
            from spark_app.page.views.schemas.jobs import one_schema as job
        case "runs":
            from spark_app.page.views.runs.jobs import run_history as job
        case "query":
            from spark_app.page.views.query.jobs import one_query as job
        case "seen_tables":
            from spark_app.page.views.query.jobs import seen_tables as job
        case "table":
            from spark_app.page.views.table.jobs import table_facts as job
        case "lineage":
            from spark_app.page.views.table.lineage import lineage as job
        case _:
            return None
    return job


def do(request: dict[str, Any]) -> dict[str, Any]:
    """Do the job; {"failed": why} if it cannot be done."""
    settings = Settings.model_validate_json(request["settings"])
    job = load(request["job"])
    if job is None:
        return {"failed": f"there is no job {request['job']}"}
    try:
        return job(Lake(settings.lake_address), settings, **request["arguments"])
    except ProtolakeError as error:
        return {"failed": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    serve_requests(do)
