"""The origins and the targets of the rows and columns of a lake's tables.

It reads the lake and the settings, and changes nothing: it needs no registry, no Kafka and no Spark, takes no lock, and
runs beside the app.
"""
