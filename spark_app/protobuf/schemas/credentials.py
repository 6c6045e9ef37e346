"""Registry credentials from a password or token file, which may change while the app runs."""

from __future__ import annotations

import base64
import re

from spark_app.model.errors import ConfigurationError
from spark_app.protobuf.schemas.registry_access import LOGIN_STATUS
from spark_app.settings import config
from spark_app.settings.connections import RegistrySettings

TOKEN = re.compile(r"[!-~]+")  # with other characters a library rejects the header, in an error that has the token


class Login:
    """The login of one client. It reads the secret when it is created, and again after access was denied (`renew`).

    Attributes:
        header: value of the "Authorization" header; "" without a login.

    Raises:
        ConfigurationError: the file cannot be read, or contains no valid token.
    """

    def __init__(self, settings: RegistrySettings):
        self._settings = settings
        self.header = self._read()
        self._sent_secrets = _secrets_of(self.header)

    @staticmethod
    def is_refusal(status: int) -> bool:
        return status in LOGIN_STATUS

    def mask(self, text: str) -> str:
        """The text with every secret that was sent replaced by "***"."""
        for secret in self._sent_secrets:
            text = text.replace(secret, "***")
        return text

    def renew(self) -> str:
        """Read the file again and return the header; the old header if the file is not valid."""
        try:
            self.header = self._read()
        except ConfigurationError:
            return self.header  # another process may be writing the file
        self._sent_secrets |= _secrets_of(self.header)
        return self.header

    def _read(self) -> str:
        settings = self._settings
        if settings.token_file:
            token = config.read_secret(settings.token_file, "registry.token_file")
            if not TOKEN.fullmatch(token):
                raise ConfigurationError(f"registry.token_file: {settings.token_file} must hold only the token")
            return f"Bearer {token}"
        if settings.username:
            password = config.read_secret(settings.password_file, "registry.password_file")
            return f"Basic {base64.b64encode(f'{settings.username}:{password}'.encode()).decode()}"
        return ""


def _secrets_of(header: str) -> frozenset[str]:
    """The secrets in a header: its credentials as they are sent, and for basic auth also the plain password."""
    kind, _, sent = header.partition(" ")
    password = base64.b64decode(sent).decode().partition(":")[2] if kind == "Basic" else ""
    return frozenset(filter(None, (sent, password)))
