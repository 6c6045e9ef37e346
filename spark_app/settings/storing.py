"""Where the tables are, who may read them, and which files are merged and kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from spark_app.settings.connections import Section


class LakeSettings(Section):
    """This section sets the folder of the tables, who may read it, and which files are merged and kept."""

    path: str = Field(
        "lake",
        pattern=r"^[^\[\]{}|^\\]+$",
        description="folder of the tables, or s3://bucket/prefix; it may not contain any of []{}|^\\",
    )
    untested: bool = Field(
        False,
        description="accept a lake.path or source.path in a kind of object store that was never tested (gs, az)",
    )
    umask: str = Field(
        "027",
        pattern=r"^[0-7]{3}$",
        description="permission bits that new files lack: 027 = the group may read, others not; 022 = all may read",
    )
    log_retention_hours: PositiveFloat = Field(1.0, description="hours that log entries and replaced files are kept")
    compact_files: PositiveInt = Field(40, description="small files of a table that start a compaction")
    compact_bytes: PositiveInt = Field(128 << 20, description="bytes of the files that compaction makes")
    checkpoint_every: PositiveInt = Field(50, description="commits between Delta checkpoints")
    keep_manifests: PositiveInt = Field(1000, description="finished manifests that are kept")
    compression: Literal["zstd", "snappy"] = Field("zstd", description="compression of Parquet files")
    bronze_compression: Literal["", "zstd", "zstd:-5", "snappy", "none"] = Field(
        "", description="compression of bronze's files: zstd, zstd:-5 (faster), snappy, none; empty = lake.compression"
    )
    min_free_bytes: PositiveInt = Field(
        256 << 20, description="free bytes on the disk below which the app stops reading Kafka and waits"
    )

    @property
    def compression_of_bronze(self) -> str:
        return self.bronze_compression or self.compression


class Store(Section):
    """This section sets how the object store is reached if the lake, or the folder of files, is in one."""

    endpoint: str = Field(
        "", pattern=r"^(https?://[^\s/?#@]+/?)?$", description="address of the store; empty = the one of the cloud"
    )
    region: str = Field("", description="region of the bucket; empty = AWS_REGION of the environment")
    credentials_file: str = Field(
        "",
        description="file with the keys as AWS's tools keep them, open to nobody else; empty = keys of the environment "
        "or of the machine's role",
    )
    local_path: str = Field(
        "",
        description="folder on this machine for Spark's checkpoint, the locks and the page's token; empty = one in "
        "~/.local/state/protolake",
    )
    lease_s: float = Field(
        30.0,
        ge=3,
        description="seconds that the lease of an app that died on another machine lasts, or that app's own number if "
        "it is larger; it is renewed three times as often",
    )
