"""Before the first record: topic, compatibility of the subject, first schema versions. Safe to repeat beside data."""

from producer.patience import StopSignal
from producer.progress import tell
from producer.schemas import compile_version
from producer.settings import Setup
from producer.subject import Subject
from producer.timeline import Timeline
from producer.topic import Topic


def prepare(settings: Setup, stop: StopSignal) -> None:
    """Make everything that a run needs. Raises ConfigurationError, UnreachableError."""
    prepare_topic(settings, Topic(settings, stop))
    prepare_subject(settings, Subject(settings, stop))


def prepare_topic(settings: Setup, topic: Topic) -> None:
    """Create the topic, or say that it is left as it is: its keys and its records depend on its shape."""
    if topic.ensure():
        tell(f"topic {settings.topic} created with {settings.partitions} partitions")
        return
    found = topic.partitions()
    tell(f"topic {settings.topic} exists with {found} partitions and stays unchanged")


def prepare_subject(settings: Setup, subject: Subject) -> None:
    """Set the level, then register the versions that a run begins with, oldest first."""
    subject.set_compatibility(settings.wait)
    tell(f"subject {subject.name} has compatibility level {settings.compatibility}")
    window = Timeline(("*",), settings.schema_version, settings.num_versions).window("*")
    for number in (*subject.skipped(window[0], settings.wait), *window):
        schema_id, version = subject.register(compile_version(number, settings.proto), settings.wait)
        tell(f"v{number} is version {version} of {subject.name}, schema id {schema_id}")
