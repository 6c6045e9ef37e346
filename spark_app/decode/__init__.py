"""Protobuf payloads to Arrow columns, by the schema that wrote them."""

from spark_app.decode.decoder import Decoded, Decoder, decoder_for
from spark_app.decode.numbering import message_at
from spark_app.decode.typemap import arrow_schema

__all__ = ["Decoded", "Decoder", "arrow_schema", "decoder_for", "message_at"]
