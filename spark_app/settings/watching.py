"""Settings of the process that watches a lake: where `protolake page` listens, and which alerts it sends."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from spark_app.settings.connections import Section, without_secrets

RuleName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class Page(Section):
    """This section sets where `protolake page` listens, and what it may show."""

    host: str = Field("127.0.0.1", min_length=1, description="address it listens on")
    port: int = Field(8085, ge=0, le=65535, description="port it listens on; 0 = a free one, which it prints")
    names: tuple[str, ...] = Field(
        (), description="host names by which clients may call it, besides localhost and IP addresses"
    )
    address: str = Field(
        "", description="address at which browsers reach it, such as http://127.0.0.1:8085; empty = host and port"
    )
    clear_text: bool = Field(False, description="show records as they were sent although projections change columns")

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")


class AlertRule(Section):
    """A condition that sends a notification: `when` over the metrics, or `sql` over the tables."""

    when: str = Field("", description="condition in SQL over the names in docs/alerts.md, such as age_s > 60")
    sql: str = Field("", description="SELECT over the tables of the lake that gives true or false, instead of when")
    for_s: float = Field(0.0, ge=0, description="seconds that the condition is true before it fires")
    every_s: float = Field(300.0, ge=1, description="seconds between two runs of sql")
    level: Literal["INFO", "WARNING", "ERROR"] = Field("WARNING", description="how bad it is")
    description: str = Field("", description="what to do about it")

    @model_validator(mode="after")
    def _has_one_condition(self) -> AlertRule:
        if bool(self.when) == bool(self.sql):
            raise ValueError("set either when or sql")
        return self


class Alerts(Section):
    """This section sets the conditions that `protolake page` watches, and where it sends alerts."""

    webhook_file: str = Field("", description="file that holds the address to which alerts are sent, if it is a secret")
    webhook: str = Field("", description="the address, if it holds no secret; empty = alerts are not sent")
    token_file: str = Field("", description="file that holds a bearer token for the address")
    ca_file: str = Field("", description="PEM file of the certificate authority of the address; empty = the system's")
    format: Literal["json", "slack", "alertmanager"] = Field("json", description="form of what is sent")
    rules: dict[RuleName, AlertRule] = Field(
        {}, description="name -> {when or sql, for_s, every_s, level, description}, see docs/alerts.md"
    )

    @field_validator("webhook")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return without_secrets(value, "alerts.webhook_file, or alerts.token_file")

    @model_validator(mode="after")
    def _has_one_address(self) -> Alerts:
        if self.webhook and self.webhook_file:
            raise ValueError("webhook and webhook_file are two addresses: set one")
        return self
