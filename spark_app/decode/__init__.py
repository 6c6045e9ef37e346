"""Decodes Protobuf payloads to Arrow columns, with the schema that wrote them.

The worker calls this package after it has read a record's frame and before it chooses the record's table.
"""

from spark_app.decode.decoder import Decoded, Decoder, decoder_for
from spark_app.decode.numbering import message_at
from spark_app.decode.typemap import arrow_schema

__all__ = ["Decoded", "Decoder", "arrow_schema", "decoder_for", "message_at"]
