"""Creates the topic, sets the subject's compatibility and registers the first schema versions. Safe to repeat with
data."""

from producer.patience import StopSignal
from producer.progress import print_line
from producer.schemas import compile_version
from producer.settings import Setup
from producer.subject import Subject
from producer.timeline import Timeline
from producer.topic import Topic


def prepare(settings: Setup, stop: StopSignal) -> None:
    """Create everything that a run needs. Raises ConfigurationError, UnreachableError."""
    prepare_topic(settings, Topic(settings, stop))
    prepare_subject(settings, Subject(settings, stop))


def prepare_topic(settings: Setup, topic: Topic) -> None:
    """Create the topic, or print that it stays unchanged: its keys and records depend on its partitions."""
    if topic.ensure():
        print_line(f"topic {settings.topic} created with {settings.partitions} partitions")
        return
    found = topic.partitions()
    print_line(f"topic {settings.topic} exists with {found} partitions and stays unchanged")


def prepare_subject(settings: Setup, subject: Subject) -> None:
    """Set the compatibility level, then register the versions with which a run begins, oldest first."""
    subject.set_compatibility(settings.wait)
    print_line(f"subject {subject.name} has compatibility level {settings.compatibility}")
    window = Timeline(("*",), settings.schema_version, settings.num_versions).window("*")
    for number in (*subject.skipped(window[0], settings.wait), *window):
        schema_id, version = subject.register(compile_version(number, settings.proto), settings.wait)
        print_line(f"v{number} is version {version} of {subject.name}, schema id {schema_id}")
