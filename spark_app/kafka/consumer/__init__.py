"""A worker's own Kafka consumer: ranges of offsets in, Arrow batches of `SOURCE_SCHEMA` out."""
