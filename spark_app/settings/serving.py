"""Settings of the PostgreSQL that serves the lake to other programs."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, StringConstraints, field_validator, model_validator

from spark_app.settings.connections import Section
from spark_app.settings.sinks import EVERY, Postgres, SinkSettings

UserName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
NO_USER = re.compile("pg_.*|public|none|current_role|current_user|session_user")  # PostgreSQL's own
SERVE, SERVE_SILVER = "serve", "serve_silver"  # the names of its sinks


class Serve(Section):
    """This section sets which PostgreSQL follows the lake, for BI tools and other programs."""

    dsn_file: str = Field(
        "", description="file with the connection string, postgresql://user:password@host/database; empty = no serving"
    )
    schema_name: str = Field("public", min_length=1, description="schema of the tables, which exists")
    silver_days: NonNegativeInt = Field(0, description="days for which rows of silver are served, too; 0 = none are")
    timeout_s: PositiveFloat = Field(30.0, description="seconds for a connection, and for a statement")

    @property
    def sinks(self) -> dict[str, SinkSettings]:
        """The sinks that serve."""
        if not self.dsn_file:
            return {}
        rows = Postgres(dsn_file=self.dsn_file, namespace=self.schema_name, timeout_s=self.timeout_s)
        found = {SERVE: SinkSettings(source=EVERY, rows_per_call=10_000, max_wait_s=0.5, in_flight=1, postgres=rows)}
        if self.silver_days:
            recent = rows.model_copy(update={"keep_days": self.silver_days})
            found[SERVE_SILVER] = SinkSettings(begin="all", rows_per_call=10_000, in_flight=1, postgres=recent)
        return found


class User(Section):
    """A person, or a program, who may see a part of the lake: in the PostgreSQL that serves it, and on the page."""

    password_file: str = Field("", description="file with the password for PostgreSQL; empty = no login there")
    token_file: str = Field("", description="file with a token for the page; empty = no way into it")
    tables: tuple[str, ...] = Field(min_length=1, description="names of tables; * stands for any characters")
    may: tuple[Literal["query", "replay", "decide"], ...] = Field(
        ("query",), description="on the page: SQL, and for who sees everything replays and decisions about schemas"
    )
    hide: tuple[str, ...] = Field((), description="fields that the user does not see, nor what is made of them")

    @field_validator("tables")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not re.fullmatch(r"[a-z0-9_*]+", one):
                raise ValueError(f"{one!r} is no pattern of names of tables, such as gold_*")
        return value

    @field_validator("hide")
    @classmethod
    def _are_fields(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if not re.fullmatch(r"\w+", one):
                raise ValueError(f"{one!r} is no name of a field: one inside of another is named by itself")
        return value

    @model_validator(mode="after")
    def _can_come_in(self) -> User:
        if not (self.password_file or self.token_file):
            raise ValueError("needs password_file for PostgreSQL, token_file for the page, or both")
        if not self.sees_all and set(self.may) - {"query"}:
            raise ValueError('may: who does not see everything (tables = ["*"], no hide) may only query')
        return self

    @property
    def sees_all(self) -> bool:
        return "*" in self.tables and not self.hide

    def may_see(self, table: str) -> bool:
        """Whether the patterns have the table."""
        return any(fnmatchcase(table, pattern) for pattern in self.tables)
