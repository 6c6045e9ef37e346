"""One local Spark session for the folder, as the app starts it; for each test a lake of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.local import java
from scripts.local.downloads import ensure
from scripts.local.environment import class_archive
from spark_app.settings.config import load
from spark_app.settings.models import Settings
from spark_app.units.spark import jvm, session
from tests.spark.parts import Parts
from tests.support.answers import Answers, serve


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The defaults, with this machine's Java and jars, and a temporary folder of its own as the app has it."""
    found, jars = java.find(), ensure("spark")
    archive = class_archive(found, jars)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(tmp_path_factory.mktemp("own")))
        environment.setenv("JAVA_HOME", str(found.spark_home()))
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # these JVMs never get old
        environment.setenv("PROTOLAKE_SPARK__MASTER", "local[2,1]")  # what fails here, fails again
        environment.setenv("PROTOLAKE_SPARK__JARS", str(jars))
        environment.setenv("PROTOLAKE_SPARK__CLASS_ARCHIVE", str(archive or ""))
        settings = load()
        yield settings


@pytest.fixture(scope="session")
def spark(spark_settings: Settings) -> Iterator[SparkSession]:
    yield session.start(spark_settings, "tests", quiet=True)
    jvm.end(clean=True)


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A registry that knows nothing until it is told."""
    with serve() as served:
        yield served


@pytest.fixture
def new_parts(spark: SparkSession, tmp_path: Path) -> Callable[..., Parts]:
    """The app's parts on the test's lake; called again, they are those of the app after a restart."""
    return lambda url="http://127.0.0.1:1", **sections: Parts(spark, tmp_path / "lake", url, sections)
