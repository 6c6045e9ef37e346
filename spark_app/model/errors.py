"""The errors that stop the app, each with its exit code.

A bad record is never an exception: it becomes a row in quarantine with a `Cause` (see `model/causes`). The exceptions
of this module stop the app; each text states the problem, the place and the remedy.
"""

from enum import IntEnum

from spark_app.model.text import one_line


class ExitCode(IntEnum):
    """Exit codes from sysexits.h. After a held code a restart cannot help; a person has to act."""

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


def pass_interrupts(error: BaseException) -> None:
    """Raise the error again if it is an interrupt. Neither a panic in Rust nor an interrupt is an `Exception`."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


class ProtolakeError(Exception):
    """Base class. Printed as one line without a traceback; control characters are escaped."""

    exit_code = ExitCode.BUG

    def __init__(self, text: str):
        super().__init__(one_line(text))


class UsageError(ProtolakeError):
    """A command was called with arguments that are not valid."""

    exit_code = ExitCode.USAGE


class ConfigurationError(ProtolakeError):
    """A setting is wrong, or the machine lacks something that only its owner can provide."""

    exit_code = ExitCode.CONFIGURATION


class ContractError(ProtolakeError):
    """Records were lost, or the lake's files contradict each other. The app writes nothing more.

    Attributes:
        what: the message without its remedy, for callers that add their own.
    """

    exit_code = ExitCode.LOSS

    def __init__(self, what: str, remedy: str = ""):
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = one_line(what)


class UnreachableError(ProtolakeError):
    """The broker, the registry or the lake's lock was not available within the timeout."""

    exit_code = ExitCode.UNREACHABLE


class LeaseLost(UnreachableError):
    """Another process writes the lake now. This one writes nothing more; its restart waits for the other's end."""


class BrokenError(ProtolakeError):
    """The JVM died, or the app has a bug. The text names the records of the unfinished work."""


class NoSpaceError(ProtolakeError):
    """The disk is full. Commands exit with this error; the app waits until there is free disk space."""

    exit_code = ExitCode.NO_SPACE


class SchemaBump(ProtolakeError):
    """A record has a schema id that is new to the lake. The app exits, and restarts with the new columns."""

    exit_code = ExitCode.BUMP


def first_message_line(error: BaseException) -> str:
    """The first line of an error's text, at most 300 characters; without a text its class."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def last_message_line(error: BaseException) -> str:
    """The message of the Python or Java error in one line, at most 450 characters: the last line of a traceback, else
    the first one, which a plan of Spark may follow."""
    text = str(error).split("\n\tat ", 1)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("An error occurred")]
    lines = lines[-1:] if "Traceback (most recent call last)" in text else lines
    return lines[0].removeprefix(": ")[:450] if lines else type(error).__name__
