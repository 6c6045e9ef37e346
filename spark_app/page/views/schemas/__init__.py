"""The schemas that the lake knows, and a view of each."""

from spark_app.page.view import Job, Show, View


def _show_list() -> Show:
    from spark_app.page.views.schemas.view import show_list

    return show_list


def _show_one() -> Show:
    from spark_app.page.views.schemas.view import show_one

    return show_one


def _known_schemas() -> Job:
    from spark_app.page.views.schemas.jobs import known_schemas

    return known_schemas


def _one_schema() -> Job:
    from spark_app.page.views.schemas.jobs import one_schema

    return one_schema


VIEW = View("/schemas", "Schemas", _show_list, {"schemas": _known_schemas})
ONE = View("/schemas/{schema}", "Schema", _show_one, {"schema": _one_schema})
