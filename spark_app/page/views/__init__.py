"""The views of the page, a folder each, in the order in which they stand in the bar."""

from spark_app.page.views import flow, quarantine, query, runs, schemas, table

VIEWS = (
    flow.VIEW,
    quarantine.VIEW,
    schemas.VIEW,
    schemas.ONE,
    runs.VIEW,
    query.VIEW,
    table.VIEW,
)
