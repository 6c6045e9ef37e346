"""One stack per state folder: a lock that is held as long as any process of the stack runs.

The attendants inherit the lock, so after a kill -9 of ./scripts/run the lock stays until the stack has ended.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

from scripts.local.errors import LocalError

PATIENCE_SECONDS = 30.0


class Claim:
    """The lock of one state folder."""

    def __init__(self, state: Path) -> None:
        self.path = state / "run" / "lock"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.file = self.path.open("a+")
        except OSError as error:
            raise LocalError(f"cannot write {self.path} ({error.strerror}): name another folder with --state") from None

    def acquire(self) -> bool:
        """True: this process has the lock. False: a live ./scripts/run has it. Waits for the stack of a dead one to
        end."""
        deadline, logged = time.monotonic() + PATIENCE_SECONDS, False
        while not self._try():
            if self.holder():
                return False
            if time.monotonic() > deadline:
                raise LocalError(
                    f"an old stack in {self.path.parent.parent} does not end: look for its processes with ps", 70
                )
            if not logged:
                print("the last stack is still stopping ...", file=sys.stderr)
                logged = True
            time.sleep(0.2)
        self._sign()
        return True

    def holder(self) -> int | None:
        """The process id of the live ./scripts/run that holds the lock."""
        text = self.path.read_text().strip()
        if not text.isdecimal():
            return None
        try:
            os.kill(int(text), 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return int(text)

    def release(self) -> None:
        self.file.close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _sign(self) -> None:
        self.file.truncate(0)
        self.file.write(f"{os.getpid()}\n")
        self.file.flush()
