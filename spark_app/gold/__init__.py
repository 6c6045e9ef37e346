"""Gold: what is new in silver, folded into one row per key and table.

The manifests since the last run name the new silver files. One Spark job folds them for all tables; then one merge per
touched table, side by side, with the last manifest folded as its transaction, so that a crash between two merges is
seen by the next run.
"""
