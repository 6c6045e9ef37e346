"""Values that all stages share: record schemas, reports, causes, table names, and the errors that stop the app.

These values travel between the stages. The package imports no other package of the app.
"""
