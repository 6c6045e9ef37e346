"""What the user can act on: one line and an exit code, never a traceback."""

USAGE = 64
UNREACHABLE = 69
CONFIGURATION = 78


class LocalError(Exception):
    """What is wrong, where, and what to do next; `code` is the exit code of the command (sysexits)."""

    def __init__(self, message: str, code: int = CONFIGURATION) -> None:
        super().__init__(message)
        self.code = code
