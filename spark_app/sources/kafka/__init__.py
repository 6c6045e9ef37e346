"""Kafka clients: records, topics with their ids and offsets, open transactions, and login errors.

A record's way starts here: `spark_source` plans the offsets of a batch, and `consumer` reads the records in a task.
"""
