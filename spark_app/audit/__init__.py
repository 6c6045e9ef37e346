"""An independent look at a lake: does it hold what Kafka holds, each record once, in its place, as its bytes say?

Nothing here uses the code that made the rows: frames are split again, payloads read by Google's classes, tables by
delta-rs, gold computed by Arrow. What both sides share are names, settings and the lake's own files.

    auditor      goes through a lake, chunk by chunk
    snapshot     versions of all tables between two units; where the lake began and how far it is
    records      what records are, and whoever still has them
    broker       what Kafka has, by a read_committed consumer, and proof that it is all
    acks         what producers were told is safe
    frames       which schema and message a record is
    schemas      the messages of the lake's schemas
    expected     what a message must land as
    place        where a record belongs, with what content, or why it may be refused
    slots        which offsets a chunk covers
    chunk        its records, and every table's rows of them
    raw          bronze against Kafka
    silver       silver against what the records must become
    placed       where each record landed
    quarantine   whether the bytes of a refused record allow its cause
    content      how values are compared
    outside      rows of no record
    gold         gold against silver
    verdict      what was found; words, for people
"""

from spark_app.audit.auditor import audit
from spark_app.audit.verdict import Verdict

__all__ = ["Verdict", "audit"]
