"""Settings of decoding: frames, payloads and wrappers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from spark_app.model import wrapper
from spark_app.settings.connections import Section


class Decode(Section):
    """This section sets how frames, keys and payloads are decoded."""

    strict: bool = Field(
        True, description="Google's parser checks each record; false = only where the fast decoder refuses one"
    )
    defaults: bool = Field(
        True, description="a scalar without presence that is absent lands as its default; false = as NULL"
    )
    message_index: Literal["", "registered", "descriptor", "without_map_entries"] = Field(
        "",
        description="whether map entries count in a message index, see docs/decoding.md; empty = as the lake has it: "
        "registered, or descriptor in one of an earlier release",
    )
    unframed_schema_id: int = Field(
        0, ge=0, lt=2**31, description="schema of records without a frame; 0 = such records go to quarantine"
    )
    unframed_message: str = Field("", description="full name of their message; empty = the first of the schema")
    framed_keys: bool = Field(False, description="record keys are framed Protobuf too: decode them to JSON in _key")

    @model_validator(mode="after")
    def _names_a_schema(self) -> Decode:
        if self.unframed_message and not self.unframed_schema_id:
            raise ValueError("unframed_message is of no use without unframed_schema_id")
        return self


class Wrapper(Section):
    """This section sets the fields of a wrapper, which carries the event as bytes; the event may have any schema."""

    payload: str = Field("", description="field that holds the event, framed or bare; empty = the message is the event")
    schema_id: str = Field("", description="field that holds the event's schema id; empty = every payload has a frame")

    @model_validator(mode="after")
    def _names_a_payload(self) -> Wrapper:
        if self.schema_id and not self.payload:
            raise ValueError("schema_id is of no use without payload")
        return self

    @property
    def names(self) -> wrapper.Wrapper | None:
        """The wrapper's fields; None = the records' messages are the events."""
        return wrapper.Wrapper(self.payload, self.schema_id) if self.payload else None
