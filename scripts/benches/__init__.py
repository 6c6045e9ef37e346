"""./scripts/bench: what the design promises, measured on this machine.

options                 which measurement, how large
tables                  seconds per batch into few and into many silver tables
drain                   Kafka to bronze and silver, against Spark's own copy of the same topic
floor                   that copy, as a process of its own
servers                 a broker and a registry of the bench's own
frames                  made-up records, framed by the official serializer
progress                when a streaming query took its batches, read from its checkpoint
result                  a small table for people, a JSON line in local/bench.jsonl for machines
"""
