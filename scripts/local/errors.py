"""Errors for the user: one line and an exit code."""

import os

# The numbers of the app's `ExitCode`, without importing the app: the image build runs this module before it has it.
USAGE, UNREACHABLE, CONFIGURATION = os.EX_USAGE, os.EX_UNAVAILABLE, os.EX_CONFIG


class LocalError(Exception):
    """The message says what is wrong, where, and what to do next; `code` is the exit code of the command (sysexits)."""

    def __init__(self, message: str, code: int = CONFIGURATION) -> None:
        super().__init__(message)
        self.code = code
