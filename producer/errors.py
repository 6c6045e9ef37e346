"""What can stop the producer. Each error is one line for a person and one exit code (sysexits) for a supervisor."""


class ProducerError(Exception):
    """Root of everything that ends the producer with one clear line; a child sets its own `exit_code`."""

    exit_code = 70


class UsageError(ProducerError):
    """An unknown command or option."""

    exit_code = 64


class ConfigurationError(ProducerError):
    """A setting, a topic or a subject that cannot work as it is; the message names the key."""

    exit_code = 78


class UnreachableError(ProducerError):
    """Broker or registry stayed away for longer than the producer was told to wait."""

    exit_code = 69
