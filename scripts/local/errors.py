"""Errors for the user: one line and an exit code."""

from spark_app.model.errors import ExitCode

USAGE, UNREACHABLE, CONFIGURATION = ExitCode.USAGE, ExitCode.UNREACHABLE, ExitCode.CONFIGURATION


class LocalError(Exception):
    """The message says what is wrong, where, and what to do next; `code` is the exit code of the command (sysexits)."""

    def __init__(self, message: str, code: int = CONFIGURATION) -> None:
        super().__init__(message)
        self.code = code
