"""The Spark session, and the executors that it has."""

from __future__ import annotations

import re

from pydantic import Field, field_validator, model_validator

from spark_app.settings.connections import Section

LOCAL = re.compile(r"local(\[[^\]]*\])?")
CLUSTERS = re.compile(r"spark://[^\s/?#@]+:\d+(,[^\s/?#@]+:\d+)*|k8s://\S+|yarn")
MAY_BE_SECRET = "(?i)secret|password|token|credential|access[.]?key|account[.]key|encryption[.]key|keystore[.]key|jaas"


class SparkSettings(Section):
    """This section sets the Spark session, its JVM, and on a cluster its executors."""

    master: str = Field(
        "local[2,4]", description="local[cores, attempts of a task], or a cluster: spark://host:port, k8s://..., yarn"
    )
    driver_memory: str = Field("1g", description="size of the JVM's heap")
    jars: str = Field("", description="folder of the jars that Spark does not ship; empty = Spark's own folder")
    class_archive: str = Field("", description="JVM class archive that makes the start faster; empty = none")
    ui_port: int = Field(0, ge=0, le=65535, description="port of Spark's UI on ui_host; 0 = no UI")
    ui_host: str = Field("127.0.0.1", description="address the UI listens on")
    driver_host: str = Field("127.0.0.1", description="address at which executors find the app")
    bind_address: str = Field("", description="address the app listens on for executors; empty = driver_host")
    executor_python: str = Field(
        "", description="Python of the executors, with Protolake installed; empty = the app's, at the same path there"
    )
    auth_secret_file: str = Field(
        "", description="file with the secret of the cluster, open to nobody else; a cluster needs one"
    )
    max_executors: int = Field(
        0, ge=0, description="executors under load; 0 = as many as the cluster gives, all the time"
    )
    min_executors: int = Field(1, ge=1, description="executors that stay when there is little to do")
    executor_calm_s: float = Field(
        60, ge=5, description="seconds of little load before executors are given back to the cluster"
    )
    options: dict[str, str] = Field(
        {}, description='further options of Spark, such as { "spark.executor.memory" = "2g" }; no secrets'
    )

    @field_validator("master")
    @classmethod
    def _known_master(cls, master: str) -> str:
        ports = re.findall(r":(\d+)(?:,|$)", master) if master.startswith("spark:") else []
        if not (LOCAL.fullmatch(master) or CLUSTERS.fullmatch(master)) or any(not 0 < int(p) < 65536 for p in ports):
            raise ValueError("is neither local[cores,attempts] nor spark://host:port, k8s://... or yarn")
        return master

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str]) -> dict[str, str]:
        for name in options:
            if not name.startswith("spark."):
                raise ValueError(f"{name[:64]} is no option of Spark: each begins with spark.")
            if re.search(MAY_BE_SECRET, name):
                raise ValueError(f"{name[:64]} may be a secret, which options show: use auth_secret_file")
        return options

    @model_validator(mode="after")
    def _authenticated(self) -> SparkSettings:
        if self.master.startswith("spark:") and not self.auth_secret_file:
            raise ValueError(
                "auth_secret_file is empty: without a secret everybody who reaches the cluster could run code in it"
            )
        return self

    @model_validator(mode="after")
    def _scalable(self) -> SparkSettings:
        if self.scales and self.min_executors > self.max_executors:
            raise ValueError(f"min_executors = {self.min_executors} is more than max_executors = {self.max_executors}")
        if self.scales and str(self.options.get("spark.dynamicAllocation.enabled")).lower() == "true":
            raise ValueError("max_executors: the app or Spark's dynamic allocation sets the executors: remove one")
        return self

    @property
    def scales(self) -> bool:
        """Whether the number of executors follows the load."""
        return self.on_cluster and self.max_executors > 0

    @property
    def on_cluster(self) -> bool:
        return not LOCAL.fullmatch(self.master)
