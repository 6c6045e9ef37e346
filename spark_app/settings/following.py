"""Settings of the followers, which read the committed units beside ingest."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from spark_app.settings.connections import Section


class Followers(Section):
    """This section sets how much is kept for followers of the units, such as gold and the events, that are behind."""

    max_bytes: PositiveInt = Field(
        4 << 30, description="bytes of manifests that are kept for each follower that is behind; see docs/events.md"
    )


class Events(Section):
    """This section sets how often events are written to the table of events, and how long it keeps them."""

    interval_s: PositiveFloat = Field(10.0, description="seconds between two files of the table")
    keep_days: PositiveFloat = Field(30.0, description="days after which events are removed")
