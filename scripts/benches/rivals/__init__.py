"""What users would do instead, done well. Each is a process of its own, `python -m scripts.benches.rivals.<name>`: it
has the app's settings, but for one, takes what is in the topic, and ends.

    floor      no decoding at all: Spark's own sink copies the raw records into one Delta table
    rows       the 2022 way: the floor's copy; from there a row UDF with generated classes, a filtered append and an
               aggregate query for each game; with Spark's own settings for its jobs, as a notebook has them
    tuned_rows the same with the app's settings
    arrow      the careful way: this project's decoder in mapInArrow, appends side by side and safe against a retry
    consumer   no Spark: one process with the official deserializer and delta-rs

All write <lake>/bronze and, but for the floor, <lake>/silver_<game>; those with rows and arrow <lake>/gold_<game> too.
"""
