"""The way out: rows of committed units, cut into calls, sent by `protolake deliver`, with a ledger of every call.

The reasons: docs/decisions/followers.md.
"""
