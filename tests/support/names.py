"""500 hostile reference names, and a process that meets them all: `python -m tests.support.names CANARY`.

It asks a registry for schemas with these names, compiles them, and prints as JSON what became of them and what the
process touched meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import Any

EXPLOIT = 'os;getattr(__import__("os"),"system")("touch {canary}")#.proto'
STEMS = ["x.proto", "etc/passwd", "config", "root/.ssh/authorized_keys", "a.proto", "_protolake/id"]
UP = [
    "../",
    "..\\",
    "....//",
    "%2e%2e/",
    "%2e%2e%2f",
    "..%2f",
    "..%c0%af",
    "../",
    "./../",
    "a/../../",
    "..;/",
    "\uff0e\uff0e/",
]
FIRST = [
    "/",
    "//",
    "-",
    "--",
    "@",
    "~",
    "~/",
    "\\\\host\\",
    "C:\\",
    "C:/",
    "file://",
    "http://127.0.0.1:1/",
    "$HOME/",
    "|",
    ";",
]
FIRST += [
    "-I/",
    "--python_out=",
    "--plugin=",
    "--descriptor_set_out=",
    "--proto_path=",
    "@/",
    "=",
    "a=",
    ":",
    "a:",
    " ",
]
INSIDE = [
    "\0",
    "\n",
    "\r\n",
    "'",
    '"',
    '"""',
    "\\",
    "`",
    "$(touch {canary})",
    "`touch {canary}`",
    "|touch {canary}|",
    "\x1b[2J",
]
INSIDE += [
    "\u202e",
    "\u200b",
    "\ud800",
    "\x7f",
    "é",
    "💥",
    "\uff41",
    "\t",
    "*",
    "?",
    "[a]",
    "{a,b}",
    "<",
    ">",
    "&",
    "%s",
    "%n",
    "{0}",
]
CODE = ["import os", "eval(1)", "__import__('os')", "';import os;'", '"\nimport os\nos.system("touch {canary}")\n"']
CODE += [EXPLOIT, EXPLOIT.replace(".proto", ""), EXPLOIT.replace("#", "\n#"), "os.system;x.proto", "exec;{canary}"]
LONG = ["a" * 4096, "a/" * 2048, "../" * 1365, "a" * 256, "é" * 200, "a/" * 128, "." * 300, "/" * 4096]
PLAIN = ["link/x.proto", "a/x.proto", "f.proto", "A.proto", "a.PROTO", "con", "nul.proto", "aux.proto", "a/./b", "a//b"]
PLAIN += [
    "a/",
    "a.",
    "0.proto",
    "in.fds",
    "out.fds",
    "said",
    "google/protobuf/x.proto",
    "google/type",
    "confluent/x.proto",
]
PLAIN += ["CONFLUENT/meta.proto", "Google/Protobuf/timestamp.proto", "protolake_value.proto", "PROTOLAKE_VALUE.proto"]


def hostile(canary: str) -> list[str]:
    found = [*CODE, *PLAIN]
    found += [up * times + stem for stem in STEMS for up in UP for times in (1, 3)]
    found += [first + stem for stem in STEMS for first in FIRST]
    found += [f"a{inside}b.proto" for inside in INSIDE] + [f"{inside}.proto" for inside in INSIDE]
    found += [f"a/{inside}" for inside in INSIDE] + LONG
    found += [f"a/{inside}/../b{number}.proto" for inside in INSIDE for number in range(3)]
    distinct = dict.fromkeys(name.replace("{canary}", canary) for name in found)
    return list(distinct)[:500]


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
TOUCHES = {"os.remove", "os.rmdir", "os.mkdir", "os.rename", "os.symlink", "os.link"}
COMMANDS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}


class Watch:
    """What a process touches, by Python's audit events."""

    def __init__(self) -> None:
        self.on = False
        self.seen: dict[str, list[str]] = {"written": [], "commands": [], "connections": []}

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in TOUCHES:
            self._wrote(arguments[0], arguments[-1])
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            self._wrote(arguments[0], None)
        elif event in COMMANDS:
            self.seen["commands"].append(os.fsdecode(arguments[0]))
        elif event == "socket.connect":
            self.seen["connections"].append(":".join(map(str, arguments[1])))

    def _wrote(self, path: Any, folder: Any) -> None:
        """`folder` is an open folder that the path is relative to, or -1, or nothing of the kind."""
        if isinstance(path, int):
            return  # a file that is open already
        place = f"/proc/self/fd/{folder}" if isinstance(folder, int) and folder > 2 else os.curdir
        found = os.path.join(os.path.realpath(place), os.fsdecode(path))
        if found != os.devnull:
            self.seen["written"].append(found)


def main(canary: str) -> None:
    from spark_app.protobuf.schemas.limits import SchemaInvalid
    from spark_app.protobuf.schemas.registry import Registry
    from spark_app.protobuf.schemas.resolution import resolve
    from spark_app.settings.connections import RegistrySettings
    from tests.support.answers import serve
    from tests.support.protos import CAPS, PROTO3

    watch = Watch()
    outcomes: Counter[str] = Counter()
    with serve() as answers:
        registry = Registry(RegistrySettings(url=answers.url), CAPS)
        sys.addaudithook(watch)
        watch.on = True
        for number, name in enumerate(hostile(canary)):
            reference = answers.version("s", 1, PROTO3 + "message A {}") | {"name": name}
            import_name = json.dumps(name)[1:-1]
            text = PROTO3 + f'import "{import_name}"; message M {{ A a = 1; }}'
            answers.schema(number, text, references=[reference])
            try:
                resolve(registry, number, CAPS)
                outcomes["harmless"] += 1
            except SchemaInvalid:
                outcomes["refused"] += 1
        watch.on = False
        seen = {"outcomes": outcomes, "server": answers.url.removeprefix("http://"), **watch.seen}
    print(json.dumps({key: list(dict.fromkeys(v)) if isinstance(v, list) else v for key, v in seen.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
