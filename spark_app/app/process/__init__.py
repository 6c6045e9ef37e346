"""The process of one run: start back-off, waiting for disk space, watchdog and shutdown.

No record passes through this package. It runs beside the streaming query and the other loops.
"""
