"""Patterns (RE2) of the text formats of protovalidate that a pattern describes exactly."""

from __future__ import annotations

from collections.abc import Mapping

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9a-fA-F]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_ZONE = r"(?:%[^\x00]+)?"
_NAME = "[A-Za-z_][A-Za-z_0-9]*"


def _ipv6() -> str:
    """The grammar of RFC 3986, with a zone. `::` stands for at least one group of zeros."""
    forms = [f"(?:{_H16}:){{6}}{_LS32}"]
    for before in range(8):
        left = f"(?:{_H16}(?::{_H16}){{0,{before - 1}}})?" if before else ""
        rest = 5 - before  # groups between `::` and the last 32 bits
        if rest >= 0:
            forms.append(f"{left}::(?:{_H16}:){{{rest}}}{_LS32}")
        else:
            forms.append(f"{left}::{_H16}" if rest == -1 else f"{left}::")
    return f"(?:{'|'.join(forms)}){_ZONE}"


_IPV6 = _ipv6()
LONGEST_HOSTNAME = 253  # bytes
HOSTNAME = rf"^(?:{_LABEL}\.)*{_LABEL}\.?$"
LAST_LABEL_OF_DIGITS = r"(?:^|\.)[0-9]+\.?$"
IP = f"^(?:{_IPV4}|{_IPV6})$"

# Rule -> pattern of the whole text.
TEXT_FORMATS: Mapping[str, str] = {
    "email": rf"^[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*$",
    "ip": IP,
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^{_IPV6}$",
    "uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "tuuid": "^[0-9a-fA-F]{32}$",
    "ulid": "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$",
    "protobuf_fqn": rf"^{_NAME}(?:\.{_NAME})*$",
    "protobuf_dot_fqn": rf"^\.{_NAME}(?:\.{_NAME})*$",
}

# (number of the HTTP pattern, strict) -> pattern
HTTP_FORMATS: Mapping[tuple[int, bool], str] = {
    (1, True): r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~\x60]+$",
    (1, False): r"^[^\x00\n\r]+$",
    (2, True): r"^[^\x00-\x08\n-\x1F\x7F]*$",
    (2, False): r"^[^\x00\n\r]*$",
}

# Rule -> lengths in bytes
BYTE_FORMATS: Mapping[str, tuple[int, ...]] = {"ip": (4, 16), "ipv4": (4,), "ipv6": (16,), "uuid": (16,)}
