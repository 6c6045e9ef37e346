"""Answers one question of a view: `python -m spark_app.page.jobs.entry`. What a job needs is loaded for it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_app.lake.lake import Lake
from spark_app.model.errors import ProtolakeError
from spark_app.page.queries.asking import reply
from spark_app.settings.models import Settings

Job = Callable[..., dict[str, Any]]


def main() -> None:
    reply(do)


def do(question: dict[str, Any]) -> dict[str, Any]:
    """Do the job; {"failed": why} if it cannot be done."""
    settings = Settings.model_validate_json(question["settings"])
    try:
        return _job(question["job"])(Lake(settings.place), settings, **question["arguments"])
    except ProtolakeError as error:
        return {"failed": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


def _job(name: str) -> Job:
    match name:
        case "quarantine_history":
            from spark_app.page.jobs import quarantine_history

            return quarantine_history.answer
        case "open_records":
            from spark_app.page.jobs import open_records

            return open_records.answer
        case "record_detail":
            from spark_app.page.jobs import record_detail

            return record_detail.answer
        case "schemas":
            from spark_app.page.jobs import known_schemas

            return known_schemas.answer
        case "schema":
            from spark_app.page.jobs import one_schema

            return one_schema.answer
        case "runs":
            from spark_app.page.jobs import run_history

            return run_history.answer
        case "query":
            from spark_app.page.jobs import one_query

            return one_query.answer
        case "table":
            from spark_app.page.jobs import table_facts

            return table_facts.answer
        case "lineage":
            from spark_app.page.jobs import made_of

            return made_of.answer
    raise ValueError(f"there is no job {name}")


if __name__ == "__main__":
    main()
