"""Alternatives to the app, each implemented well.

Each is a separate process, `python -m scripts.benches.rivals.<name>`: it has the app's settings, with one exception,
ingests the content of the topic, and exits.

    lean               no decoding at all, as a user writes it: no headers, one batch, default JVM flags
    expert             no Spark: one process with confluent-kafka, ptars (not strict), pyarrow and delta-rs
    expert_per_core    the same in a process for each core
    floor              no decoding: Spark's sink copies the raw records, with headers, in the app's session and batches
    arrow              the careful way: this project's decoder in mapInArrow, parallel appends, safe against a retry
    arrow_partitioned  the same, and one write partitioned by game
    tuned_rows         `rows` with the app's settings
    rows               the way of 2022: the floor's copy; then a row UDF with generated classes, a filtered append
                       and an aggregate query for each game; with Spark's default settings, as in a notebook
    rows_partitioned   the same, and one write partitioned by game
    consumer           no Spark: one process with the official deserializer, Python rows and delta-rs

All write <lake>/bronze and, except for the raw copies, <lake>/silver_<game>, or silver_events partitioned by game;
those with rows and arrow also write <lake>/gold_<game>, or gold_events.
"""
