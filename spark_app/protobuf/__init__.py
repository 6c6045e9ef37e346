"""Bytes to columns: frames, `schemas` of the registry, their `changes`, types of `columns`, and how to `decode`."""
