"""Spark's session and its JVM.

Records do not pass through the JVM: Spark plans the micro-batches, and Python workers read and write the records.
"""
