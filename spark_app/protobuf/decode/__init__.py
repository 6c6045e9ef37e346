"""Decodes Protobuf payloads to Arrow columns, with the schema that wrote them.

The worker calls this package after it has read a record's frame and before it chooses the record's table.
"""

from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.decode.decoder import Decoded, Decoder, decoder_for
from spark_app.protobuf.decode.numbering import message_at

__all__ = ["Decoded", "Decoder", "arrow_schema", "decoder_for", "message_at"]
