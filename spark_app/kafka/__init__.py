"""What Kafka has: bytes at offsets, topics and their ids, open transactions."""
