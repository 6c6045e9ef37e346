"""The second reader: is each record in exactly one table, with the content that its bytes give?

The audit runs on request, after all stages of a record, and shares no code with the writer: it reads frames itself,
parses payloads with Google's message classes, reads tables with delta-rs and Arrow, and computes gold with Arrow. Only
names, settings and the lake's files are shared.
"""

from spark_app.audit.auditor import audit
from spark_app.audit.verdict import Verdict

__all__ = ["Verdict", "audit"]
