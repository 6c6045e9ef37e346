"""How a client of the registry says who it is: by a password or a token in a file, which may be changed meanwhile."""

from __future__ import annotations

import base64
import re

from spark_app.model.errors import ConfigurationError
from spark_app.schemas.registry_access import LOGIN_STATUS
from spark_app.settings import config
from spark_app.settings.connections import RegistrySettings

TOKEN = re.compile(r"[!-~]+")  # else a library would refuse the header, with words that hold it


class Login:
    """Reads the secret at once, and once more when it is refused: if the file has another one then, that is tried.

    Attributes:
        header: what a request says in "Authorization"; "" where there is no login.

    Raises:
        ConfigurationError: the file cannot be read, or holds no token.
    """

    def __init__(self, settings: RegistrySettings):
        self._settings = settings
        self.header = self._read()
        self._sent_secrets = _secrets_of(self.header)

    @staticmethod
    def is_refusal(status: int) -> bool:
        return status in LOGIN_STATUS

    def mask(self, text: str) -> str:
        """The text without any secret that was sent."""
        for secret in self._sent_secrets:
            text = text.replace(secret, "***")
        return text

    def renew(self) -> str:
        """Read the file anew; the header then."""
        try:
            self.header = self._read()
        except ConfigurationError:
            return self.header  # it may be in the making
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
    """As they are sent, and the password as it is."""
    kind, _, sent = header.partition(" ")
    password = base64.b64decode(sent).decode().partition(":")[2] if kind == "Basic" else ""
    return frozenset(filter(None, (sent, password)))
