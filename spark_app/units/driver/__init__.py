"""The driver: plans units of work, runs their Spark jobs, and commits or repeats them.

It stands between Kafka and the tables: each micro-batch, deferred record and accepted loss becomes a unit here.
"""
