"""Protolake's Spark app: Confluent-framed Protobuf from Kafka to Delta tables, one per game.

The packages in the order of a record, and of their imports: each knows only those above it.

    model       what the others exchange: record schemas, reports, causes, names, errors
    settings    what can be set, and how it is read
    storage     the files and the lock of a lake
    ops         log lines and status.json
    decode      payloads to Arrow columns
    schemas     schema ids to compiled schemas
    kafka       offsets, topics, and the consumer that tasks read with
    worker      one task of a unit: frame, decode, route, write
    store       manifests, Delta commits and logs
    process     one run: start, wait, watch, exit
    spark       the session and its JVM
    driver      plans units, runs their jobs, commits them
    gold        aggregates
    recovery    replay, rebuild, doctor
    audit       a second reader that shares no code with the others
    app         connects the packages: run, shell
    cli         the command protolake

`README.md` in this folder follows one record through the modules.
"""

__version__ = "0.2.0"
