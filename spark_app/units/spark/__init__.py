"""Spark's session and its JVM.

Spark plans the micro-batches, and Python workers read and write the records. Only rows of small tables pass through
the JVM, as bytes, on their way from one worker to another.
"""
