"""The fields of a message that carries another message as bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrapper:
    """Names of the wrapper's fields: the payload (bytes), and its schema id (an integer; "" = payloads are framed)."""

    payload: str
    schema_id: str = ""

    @property
    def own(self) -> tuple[str, str]:
        """Fields that silver does not keep, because they are the frame of the payload."""
        return self.payload, self.schema_id
