"""The errors that stop the producer. Each is one line for the user and one exit code (sysexits) for a supervisor."""


class ProducerError(Exception):
    """Base class; a subclass sets its own `exit_code`."""

    exit_code = 70


class UsageError(ProducerError):
    """An unknown command or option."""

    exit_code = 64


class ConfigurationError(ProducerError):
    """A setting, a topic or a subject is not valid; the message names the key."""

    exit_code = 78


class UnreachableError(ProducerError):
    """The broker or the registry did not answer within the timeout."""

    exit_code = 69
