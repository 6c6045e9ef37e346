"""The files and the lock of a lake, and free disk space.

Every stage that reads or writes the lake uses this package.
"""
