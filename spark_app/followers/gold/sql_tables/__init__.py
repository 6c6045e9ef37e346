"""Tables by SQL files: statements in the syntax of Spark's declarative pipelines, one follower for each.

The reasons: docs/decisions/sql-tables.md.
"""
