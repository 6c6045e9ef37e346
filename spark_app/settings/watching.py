"""Settings of the process that watches a lake: where `protolake page` listens."""

from __future__ import annotations

from pydantic import Field

from spark_app.settings.connections import Section


class Page(Section):
    """This section sets where `protolake page` listens, for metrics and the health of the app."""

    host: str = Field("127.0.0.1", min_length=1, description="address it listens on")
    port: int = Field(8085, ge=0, le=65535, description="port it listens on; 0 = a free one, which it prints")
    names: tuple[str, ...] = Field(
        (), description="host names by which clients may call it, besides localhost and addresses of numbers"
    )
