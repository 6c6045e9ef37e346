"""Schemas by id: each is fetched from the registry once, compiled once, and stored in the lake's ledger.

The driver resolves the new schema ids of a batch here; the tasks get the result as a catalog.
"""
