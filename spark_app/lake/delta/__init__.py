"""The durable state of a lake: manifests, Delta commits and Delta logs, and the checks that they agree.

It stands after the Spark job of a unit: the job's files become rows of a table only when this package commits and
applies the unit.
"""
