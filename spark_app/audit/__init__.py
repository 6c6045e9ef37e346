"""The second reader: is each record in exactly one table, with the content that its bytes give?

The audit runs on request, after all stages of a record. It reads frames itself, parses payloads with Google's message
classes, reads tables with delta-rs and Arrow, and computes gold with Arrow. It finds itself which expressions a row has
to meet or is made by, and the columns that they read. The engine that evaluates them (`tables/sql`) is the writer's; so
are names, settings and the lake's files.
"""

from spark_app.audit.auditor import audit
from spark_app.audit.check_sink import audit_sink
from spark_app.audit.verdict import Verdict

__all__ = ["Verdict", "audit", "audit_sink"]
