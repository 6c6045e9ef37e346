"""Asks a child process one question, as JSON, and gets one answer."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CODE = Path(__file__).parents[2]
CPU_S = 60


def ask(module: str, question: Mapping[str, Any], within_s: float) -> dict[str, Any]:
    """The answer of `python -m MODULE`; {"failed": why} if there is none."""
    command = [sys.executable, "-m", module]
    try:
        done = subprocess.run(
            command, input=json.dumps(question), capture_output=True, text=True, cwd=CODE, timeout=within_s
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"failed": f"it takes more than {within_s:.0f} s"}
    except (OSError, ValueError):
        return {"failed": "its process ended without an answer"}
    return answer


def reply(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the question on standard input. This process can write no files from now on, and has 60 s of CPU."""
    for what, most in ((resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))
    print(json.dumps(answer(json.load(sys.stdin))))
