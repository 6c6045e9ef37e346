"""The demo producer: made-up game events, framed by the official serializer, sent to Kafka.

Follow an event: `games` makes it up, `timeline` says which schema version its game sends, `encoder` turns it into a
frame with the official serializer, `faults` spoils a share of the frames on purpose, `publish` runs it all and
`delivery` hands it to Kafka.
`setup` prepares topic and subject, `schemas` compiles `proto/v<N>`, `settings` holds every option.
"""
