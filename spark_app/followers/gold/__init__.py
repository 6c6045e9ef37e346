"""Gold: one aggregated row per key and table, updated incrementally from the new silver files of applied units.

It is the last stage of a record. The manifests name the new files, one Spark job aggregates them for all tables, and
the changed tables are then merged in parallel. Each gold commit records the last merged unit, so that the next run
continues correctly after a crash between two merges.
"""
