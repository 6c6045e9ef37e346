"""Tokens of OAuth: an endpoint on loopback gives them to one client for its secret, brokers check who signed them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey

from tests.support.answers import serve

CLIENT, SECRET = "proto-lake", 'se;cr"e\\t+%2F/='  # what an unquoted JAAS line, or a form, would break on
AUDIENCE = "kafka"


class Issuer:
    """Signs tokens with a key of its own; `keys_file` is what a broker checks them by."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256", "use": "sig"})
        self.keys_file = folder / "jwks.json"
        self.keys_file.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))

    def sign(self, scope: str, seconds: float) -> str:
        now = time.time()
        claims = {"sub": CLIENT, "aud": AUDIENCE, "iat": int(now), "exp": int(now + seconds), "scope": scope}
        return jwt.encode({"alg": "ES256", "kid": "1"}, claims, self._key)


class Endpoint:
    """Gives tokens to who knows the secret of today.

    Attributes:
        url: where.
        secret: the client's, which may change.
        description: what it says to whom it refuses.
        scopes: that were asked for, a string a token.
        tokens: that were given out.
    """

    def __init__(self, issuer: Issuer, seconds: float):
        self._issuer = issuer
        self._seconds = seconds
        self.url = ""
        self.secret = SECRET
        self.description = "who are you?"
        self.scopes: list[str] = []
        self.tokens: list[str] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        form = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
        login = f"Basic {base64.b64encode(f'{CLIENT}:{self.secret}'.encode()).decode()}"
        if handler.headers["Authorization"] != login or form["grant_type"] != ["client_credentials"]:
            return self._say(handler, 401, {"error": "invalid_client", "error_description": self.description})
        self.scopes.append(form.get("scope", [""])[0])
        self.tokens.append(self._issuer.sign(self.scopes[-1], self._seconds))
        self._say(
            handler, 200, {"access_token": self.tokens[-1], "token_type": "Bearer", "expires_in": int(self._seconds)}
        )

    def _say(self, handler: BaseHTTPRequestHandler, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def endpoint(issuer: Issuer, certificate: Path | None = None, seconds: float = 60) -> Iterator[Endpoint]:
    """An endpoint until the end of the block, whose tokens are good for so many seconds."""
    found = Endpoint(issuer, seconds)
    with serve(certificate) as answers:
        answers["/token"] = found.answer
        found.url = f"{answers.url}/token"
        yield found
