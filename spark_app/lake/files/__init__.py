"""The files of a lake, the right to write it, and free disk space.

Every stage that reads or writes the lake uses this package; no other package opens, lists, moves or syncs its files.
"""
