"""Code that runs on the executors: a task reads each record once and writes it to one file per table.

A record's way through it: frame, decoding, table, file. The package imports neither Spark nor the settings, so it has
no secrets and is tested without a JVM.
"""
