"""Kinds of sinks of other packages: `protolake deliver` sends rows of a lake through them.

A kind is a class without parameters, named by an entry point of the group `protolake.sinks`; see docs/sinks.md.
"""

from spark_app.followers.sinks.json_rows import json_lines, to_json
from spark_app.followers.sinks.sink import DELETE, OPERATION, UPSERT, Call, Outcome, Sink

__all__ = ["DELETE", "OPERATION", "UPSERT", "Call", "Outcome", "Sink", "json_lines", "to_json"]
