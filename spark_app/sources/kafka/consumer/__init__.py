"""A worker's own Kafka consumer: it reads ranges of offsets into Arrow batches of `SOURCE_SCHEMA`, at the start of a
task."""
