"""What the other packages exchange: record schemas, causes, reports, names, errors, log lines.

They import no other package of the app.
"""
