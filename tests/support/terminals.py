"""A command whose output is a terminal."""

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path


def printed(command: Sequence[str], folder: Path, until: str = "") -> str:
    """What it prints on the terminal until it ends, or until a line with this text: then it is stopped."""
    terminal, end = pty.openpty()
    with subprocess.Popen(command, cwd=folder, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        found = b""
        try:
            while not (until and until.encode() in found.rpartition(b"\n")[0]):
                found += os.read(terminal, 1 << 16)
        except OSError:  # Linux: the last process has closed it
            pass
        process.terminate()
        os.close(terminal)
    return found.decode().replace("\r\n", "\n")
