"""Sends the transitions of alerts, each at least once and those of one alert in order.

A receiver that gets one twice sees the same `Idempotency-Key` twice: "<lake>/<rule>/<number of the transition>".
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from spark_app.model import http
from spark_app.model.errors import ConfigurationError
from spark_app.model.log import log
from spark_app.page.alerts.book import Book
from spark_app.settings import config
from spark_app.settings.connections import is_loopback
from spark_app.settings.watching import Alerts

Transition = Mapping[str, Any]
ALERTMANAGER = "/api/v2/alerts"


def _json(transition: Transition) -> Any:
    """The transition as it is, with its key, and without a level inside."""
    own = {"key": transition["id"], "at": transition["at"], "level": transition["level"]}
    return own | {"message": transition["message"]} | transition["details"]


def _slack(transition: Transition) -> Any:
    text = transition["message"]
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escaped)
    mark = ":white_check_mark:" if transition["details"]["state"] == "resolved" else ":rotating_light:"
    return {"text": f"{mark} {text}", "metadata": {"event_type": "alert", "event_payload": {"key": transition["id"]}}}


def _alertmanager(transition: Transition) -> Any:
    """The labels of an alert stay the same: by them Alertmanager knows which one is resolved. It takes none that ends
    before it starts, as one would after the clock was set back."""
    details = transition["details"]
    labels = {"alertname": details["rule"], "lake": details["lake"], "job": "protolake"}
    labels["severity"] = details["severity"]
    annotations = {"summary": transition["message"], "description": details["description"], "key": transition["id"]}
    if details["state"] == "resolved":
        times = {"startsAt": min(details["since"], transition["at"]), "endsAt": transition["at"]}
    else:
        times = {"startsAt": transition["at"]}
    return [{"labels": labels, "annotations": annotations, **times}]


FORMATS: Mapping[str, Callable[[Transition], Any]] = {"json": _json, "slack": _slack, "alertmanager": _alertmanager}


def body_of(form: str, transition: Transition) -> bytes:
    """The body of the request about a transition."""
    return json.dumps(FORMATS[form](transition)).encode()


FIRST_S = 1.0
LONGEST_S = 60.0  # an outage must not delay an alert by much more than itself
WITHIN_S = 10.0  # for one attempt
REPEAT_S = 60.0  # Alertmanager takes an alert for resolved that nobody repeats
ADDRESS = re.compile(r"https?://[!-~]+")
TOKEN = re.compile(r"[!-~]+")

Post = Callable[[Mapping[str, Any]], str | None]


def pause_s(attempts: int) -> float:
    """Seconds before the next attempt, after so many that failed."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(attempts - 1, 20))


class Receiver:
    """The address of the settings. It is read at each attempt, because its file may change."""

    def __init__(self, settings: Alerts):
        """
        Raises:
            ConfigurationError: a file cannot be read, or has no address, token or certificate.
        """
        self._settings = settings
        try:
            self._context = ssl.create_default_context(cafile=settings.ca_file or None)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"alerts.ca_file: {settings.ca_file} cannot be used ({error})") from None
        parts = urlsplit(self._address())
        if self._token() and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            log.warning("the token of alerts is sent unencrypted", setting="alerts.token_file")

    def post(self, transition: Mapping[str, Any]) -> str | None:
        """Send a transition once. Returns why it was not accepted; None if it was. The text has no part of the address,
        of the token or of the answer."""
        try:
            address, token = self._address(), self._token()
        except ConfigurationError as error:
            return str(error)
        headers = [("Content-Type", "application/json"), ("Idempotency-Key", str(transition["id"]))]
        headers += [("Authorization", f"Bearer {token}")] if token else []
        body = body_of(self._settings.format, transition)
        try:
            with http.time_limit(WITHIN_S), http.connection_pool(address, self._context) as pool:
                status = http.send(pool, "POST", address, headers, WITHIN_S, content=body).status
        except (*http.FAILURES, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__
        if 300 <= status < 400:
            return f"HTTP {status}: a redirect, which is not followed"
        return None if 200 <= status < 300 else f"HTTP {status}"

    def _address(self) -> str:
        settings = self._settings
        address = settings.webhook
        if settings.webhook_file:
            address = config.read_secret(settings.webhook_file, "alerts.webhook_file").strip()
            if not ADDRESS.fullmatch(address) or not _has_host(address):
                raise ConfigurationError(f"alerts.webhook_file: {settings.webhook_file} must contain only an address")
        if settings.format == "alertmanager" and not urlsplit(address).path.endswith(ALERTMANAGER):
            address = f"{address.rstrip('/')}{ALERTMANAGER}"
        return address

    def _token(self) -> str:
        if not self._settings.token_file:
            return ""
        token = config.read_secret(self._settings.token_file, "alerts.token_file").strip()
        if not TOKEN.fullmatch(token):
            raise ConfigurationError(f"alerts.token_file: {self._settings.token_file} must contain only the token")
        return token


def _has_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False


class Delivery:
    """Sends what waits in a book to a receiver."""

    def __init__(self, book: Book, post: Post, repeats: bool = False):
        """`repeats`: send again each minute which alerts fire."""
        self._book = book
        self._post = post
        self._repeats = repeats
        self._attempts: dict[str, int] = {}  # rule -> attempts that failed
        self._due: dict[str, float] = {}  # rule -> when the next attempt is due
        self._sent_at: dict[str, float] = {}

    def start(self, clock: Callable[[], float]) -> None:
        threading.Thread(target=self._forever, args=(clock,), name="delivery", daemon=True).start()

    def _forever(self, clock: Callable[[], float]) -> None:
        while True:
            self._book.changed.clear()
            try:
                seconds = self.step(clock)
            except OSError as error:  # that an alert was sent could not be written: it is sent again
                log.warning("the state of alerts could not be written", reason=str(error))
                seconds = FIRST_S
            self._book.changed.wait(seconds)

    def step(self, clock: Callable[[], float]) -> float:
        """Make all attempts that are due. Returns the seconds until the next one is.

        Args:
            clock: monotonic seconds.
        """
        blocked: set[str] = set()
        for transition in self._book.waiting():
            rule = transition["details"]["rule"]
            if rule in blocked:
                continue
            if self._due.get(rule, 0.0) > clock():
                blocked.add(rule)
            elif (why := self._post(transition)) is None:
                self._book.mark_sent(transition)
                self._sent_at[rule] = clock()
                self._due.clear()  # the receiver is up: the others need not wait any longer
                self._attempts.clear()
            else:
                blocked.add(rule)
                self._attempts[rule] = self._attempts.get(rule, 0) + 1
                again = pause_s(self._attempts[rule])
                self._due[rule] = clock() + again
                log.warning("an alert could not be sent", alert=transition["id"], reason=why, again_in_s=again)
        if self._repeats:
            self._repeat(blocked, clock)
        waits = [self._due.get(rule, 0.0) - clock() for rule in blocked]
        waits += [REPEAT_S] if self._repeats or not blocked else []
        return max(0.1, min(waits))

    def _repeat(self, blocked: set[str], clock: Callable[[], float]) -> None:
        for transition in self._book.firing():
            rule = transition["details"]["rule"]
            if rule not in blocked and clock() - self._sent_at.get(rule, -REPEAT_S) >= REPEAT_S:
                self._sent_at[rule] = clock()
                self._post(transition)
