"""Settings of the source of records that is not Kafka: a folder of files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from spark_app.settings.connections import Section


class Source(Section):
    """This section sets where records come from: the topics of [kafka], or the files of a folder."""

    kind: Literal["kafka", "files"] = Field("kafka", description="kafka = topics; files = each new file of a folder")
    path: str = Field("", description="with files: the folder, or s3://bucket/prefix")
    name: str = Field(
        "files",
        pattern=r"^[A-Za-z0-9._-]+$",
        description="with files: name that the tables show as topic; never changes",
    )
    format: Literal["auto", "parquet", "json", "delta"] = Field(
        "auto", description="auto = delta if the folder is a Delta table, else by the ending of each file's name"
    )
    value: str = Field("value", min_length=1, description="column of the framed bytes; text is base64")
    key: str = Field("key", description="column of the key; text is base64")
    headers: str = Field("headers", description="column of the headers, in one of the forms of docs/files.md")
    timestamp: str = Field("timestamp", description="column of the record's time; integers are milliseconds since 1970")
    settle_s: NonNegativeFloat = Field(2.0, description="seconds that a file must stay unchanged before it is taken")
    full_list_s: PositiveFloat = Field(
        300.0, description="seconds between lists of the whole folder, which find late names and replaced files"
    )
    late_keys: PositiveInt = Field(
        1000, description="so many of the last names, in the order of names, are looked at again in each list"
    )

    @model_validator(mode="after")
    def _names_a_folder(self) -> Source:
        if self.kind == "files" and not self.path:
            raise ValueError('kind = "files" needs path, the folder of the files')
        return self
