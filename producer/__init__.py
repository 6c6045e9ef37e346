"""The demo producer: makes game events, frames them with the official serializer, and sends them to Kafka.

The way of an event: `games` makes it, `timeline` gives the schema version that its game sends, `plants` makes a
share of the events break a rule, `encoder` frames it with the official serializer, `faults` corrupts a share of the
frames, `publish` runs the loop, and `delivery` sends the frame to Kafka.
`setup` creates topic and subject, `schemas` compiles `proto/v<N>`, `settings` holds every option.
"""
