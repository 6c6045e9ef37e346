"""Protolake's Spark app: Confluent-framed Protobuf from Kafka to Delta tables, one per game.

The way of a record, in the order of the code:

    driver/streaming   the query: begins where the manifests ended
      kafka/source       bytes at (topic, partition, offset)
    worker/one_pass    runs on the executors, once over each record:
      worker/framing     schema id and message index
      worker/decode      Arrow columns by the writer's schema
      worker/route       the routing field names the table
      worker/files       one Parquet file per table; rejects go to quarantine with a cause
    driver/ingest      one micro-batch: runs the pass, settles, balances
      driver/settle      new schema ids and new tables: admit, bump, defer, refuse
      store/manifest     decides the unit durably
      store/commit       one Delta commit per table; redo after a crash
    driver/deferred    decodes from bronze what had to wait
    gold/aggregate     folds new silver files into gold
    store/inventory, store/checkpoint, driver/loss
                       at start: tables, Spark's checkpoint and Kafka's topics against the manifests
    recovery           decodes again: what is in quarantine (replay), what silver should hold (rebuild); doctor
    process            one run: how it starts, waits, is watched and ends
    audit              a second reader: Kafka against the tables, with none of the code above

`pipeline` wires them; `schemas` knows what a schema id means; `lake` knows where everything lives.
"""

__version__ = "0.1.0"
