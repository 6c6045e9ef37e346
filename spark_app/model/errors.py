"""What can break the pipeline, and the exit code each kind ends in.

A bad record is never an exception: it is a row in quarantine with a `Cause` (see `records`). An exception here means
that the pipeline itself cannot go on, and says what, where and what to do next.
"""

from enum import IntEnum

from spark_app.model.text import one_line


class ExitCode(IntEnum):
    """sysexits numbers. Held codes mean that a relaunch cannot help: an operator has to act."""

    DONE = 0
    USAGE = 64
    LOSS = 65
    UNREACHABLE = 69
    BUG = 70
    NO_SPACE = 73
    BUMP = 75
    CONFIGURATION = 78

    @property
    def held(self) -> bool:
        return self in (ExitCode.USAGE, ExitCode.LOSS, ExitCode.CONFIGURATION)


class ProtolakeError(Exception):
    """The root. One line, no traceback for the user; what others wrote in it cannot steer the terminal."""

    exit_code = ExitCode.BUG

    def __init__(self, text: str):
        super().__init__(one_line(text))


class UsageError(ProtolakeError):
    """A command was asked for what cannot be."""

    exit_code = ExitCode.USAGE


class ConfigurationError(ProtolakeError):
    """A setting is wrong or the machine lacks something that only its owner can provide."""

    exit_code = ExitCode.CONFIGURATION


class ContractError(ProtolakeError):
    """Proven loss, or state that contradicts itself. Nothing is written from here on.

    Attributes:
        what: the line without its remedy, for whoever knows a better one.
    """

    exit_code = ExitCode.LOSS

    def __init__(self, what: str, remedy: str = ""):
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = one_line(what)


class UnreachableError(ProtolakeError):
    """Broker, registry or lake did not answer for longer than the patience in the settings."""

    exit_code = ExitCode.UNREACHABLE


class BrokenError(ProtolakeError):
    """What was under way ended it: the JVM is gone, or a bug. Says which records it was about."""


class NoSpaceError(ProtolakeError):
    """The disk is full. Only commands leave for it; the app waits in place."""

    exit_code = ExitCode.NO_SPACE


class SchemaBump(ProtolakeError):
    """A schema id that was never met: leave, so that the relaunched app starts with its columns."""

    exit_code = ExitCode.BUMP


def last_message_line(error: Exception) -> str:
    """The last line before Java's stack: that is the message, of Python or of Java."""
    lines = [line for line in str(error).split("\n\tat ", 1)[0].splitlines() if line.strip()]
    return lines[-1][:450] if lines else type(error).__name__
