"""How a client of the registry says who it is: by a password or a token in a file, which may be changed meanwhile."""

from __future__ import annotations

import base64
import re
from collections.abc import Generator

from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the HTTP library that the client uses

from spark_app import config
from spark_app.errors import ConfigurationError
from spark_app.schemas.access import LOGIN_STATUS
from spark_app.settings import RegistrySettings

TOKEN = re.compile(r"[!-~]+")  # else a library would refuse the header, with words that hold it


class Login(httpx.Auth):
    """Read at once, and once more when it is refused: if the file has another secret then, that one is tried.

    Raises:
        ConfigurationError: the file cannot be read, or holds no token.
    """

    def __init__(self, settings: RegistrySettings):
        self._settings = settings
        self._header = self._read()
        self._told = _secrets_of(self._header)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        header = self._header
        response = yield self._sign(request, header)
        if response.status_code in LOGIN_STATUS and self._renew() != header:
            yield self._sign(request, self._header)

    def mask(self, text: str) -> str:
        """The text without any secret that was sent."""
        for secret in self._told:
            text = text.replace(secret, "***")
        return text

    def _sign(self, request: httpx.Request, header: str) -> httpx.Request:
        if header:
            request.headers["Authorization"] = header
        return request

    def _renew(self) -> str:
        try:
            self._header = self._read()
        except ConfigurationError:
            return self._header  # it may be in the making
        self._told |= _secrets_of(self._header)
        return self._header

    def _read(self) -> str:
        settings = self._settings
        if settings.token_file:
            token = config.read_secret(settings.token_file, "registry.token_file")
            if not TOKEN.fullmatch(token):
                raise ConfigurationError(f"registry.token_file: {settings.token_file} does not hold a token alone")
            return f"Bearer {token}"
        if settings.username:
            password = config.read_secret(settings.password_file, "registry.password_file")
            return f"Basic {base64.b64encode(f'{settings.username}:{password}'.encode()).decode()}"
        return ""


def _secrets_of(header: str) -> frozenset[str]:
    """As they are sent, and the password as it is."""
    kind, _, sent = header.partition(" ")
    password = base64.b64decode(sent).decode().partition(":")[2] if kind == "Basic" else ""
    return frozenset(filter(None, (sent, password)))
