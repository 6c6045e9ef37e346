"""What users would do instead, done well. Each is a process of its own, `python -m scripts.benches.rivals.<name>`: it
has the app's settings, but for one, takes what is in the topic, and ends.

    lean               no decoding at all, as a user writes it: no headers, one batch, the JVM's own flags
    expert             no Spark: one process with confluent-kafka, ptars (not strict), pyarrow and delta-rs
    expert_per_core    the same in a process for each core
    floor              no decoding: Spark's sink copies the raw records, with headers, in the app's session and batches
    arrow              the careful way: this project's decoder in mapInArrow, appends side by side, safe against a retry
    arrow_partitioned  the same, and one write partitioned by game
    tuned_rows         the next with the app's settings
    rows               the 2022 way: the floor's copy; from there a row UDF with generated classes, a filtered append
                       and an aggregate query for each game; with Spark's own settings for its jobs, as a notebook has
    rows_partitioned   the same, and one write partitioned by game
    consumer           no Spark: one process with the official deserializer, rows of Python and delta-rs

All write <lake>/bronze and, but for the raw copies, <lake>/silver_<game>, or silver_events partitioned by game; those
with rows and arrow <lake>/gold_<game> too, or gold_events.
"""
