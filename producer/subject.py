"""The value subject in the registry: its compatibility level and its versions, which are all registered explicitly."""

from collections.abc import Callable

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from producer.errors import ConfigurationError
from producer.patience import StopSignal, T, explain, persist
from producer.schemas import SchemaVersion, available_versions, look_up
from producer.settings import Settings

_TIMEOUT_S = 10


class Subject:
    """The subject of the topic's values. Every call waits up to `patience` seconds while the registry is
    unavailable."""

    def __init__(self, settings: Settings, stop: StopSignal) -> None:
        self._settings = settings
        self._stop = stop
        self.name = settings.subject
        # `persist` retries, so the client must not.
        self.client = SchemaRegistryClient.new_client(
            {"url": settings.registry, "timeout": _TIMEOUT_S, "max.retries": 0}
        )

    def set_compatibility(self, seconds: float) -> None:
        """Set the level of the subject, which may not exist yet. Raises ConfigurationError, UnreachableError."""
        level = self._settings.compatibility
        try:
            self._persist(lambda: self.client.set_compatibility(self.name, level), seconds)
        except SchemaRegistryError as error:
            raise ConfigurationError(
                f"PRODUCER_REGISTRY: {self._settings.registry_name} refuses the compatibility level: {explain(error)}"
            ) from None

    def register(self, version: SchemaVersion, seconds: float) -> tuple[int, int]:
        """Register one version, or find the registered one; returns (schema id, version of the subject).

        Raises ConfigurationError if the registry rejects it, UnreachableError.
        """
        form = version.registry_form
        try:
            found = self._persist(lambda: look_up(self.client, self.name, version), seconds)
            if found is None:
                self._persist(lambda: self.client.register_schema(self.name, form), seconds)
                found = self._persist(lambda: self.client.lookup_schema(self.name, form), seconds)
        except SchemaRegistryError as error:
            raise ConfigurationError(self._refusal(version, error)) from None
        assert found.schema_id is not None
        assert found.version is not None
        return found.schema_id, found.version

    def skipped(self, before: int, seconds: float) -> list[int]:
        """Versions below `before` that are not registered yet. If versions are registered in order, `v3` is version 3
        of the subject, too: the registry counts registrations, and the tables show its numbers."""
        latest = self._latest(seconds)
        return [number for number in available_versions(self._settings.proto) if latest < number < before]

    def _latest(self, seconds: float) -> int:
        """The subject's newest version, 0 without one. Raises ConfigurationError, UnreachableError."""
        try:
            return max(self._persist(lambda: self.client.get_versions(self.name), seconds), default=0)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                return 0
            raise ConfigurationError(
                f"PRODUCER_REGISTRY: {self._settings.registry_name} does not list the versions: {explain(error)}"
            ) from None

    def _persist(self, action: Callable[[], T], seconds: float) -> T:
        return persist(action, f"registry {self._settings.registry_name}", seconds, self._stop)

    def _refusal(self, version: SchemaVersion, error: SchemaRegistryError) -> str:
        if error.http_status_code != 409:
            return f"PRODUCER_REGISTRY: {self._settings.registry_name} refuses v{version.number}: {explain(error)}"
        return (
            f"PRODUCER_COMPATIBILITY: v{version.number} is incompatible with earlier versions; set a level "
            f"that allows it (Apicurio: BACKWARD_TRANSITIVE) and run setup, or send other versions: {explain(error)}"
        )
