"""A lake has topics or files, and the folder of files must be one of its own."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.model.reports import Report
from spark_app.settings.config import load
from spark_app.settings.models import Settings
from spark_app.sources.files.folder import DiskFolder
from spark_app.units.driver.feeds import FileFeed, KafkaFeed, feed_of
from spark_app.units.driver.open_lake import OpenLake


def opened(tmp_path: Path, **source: Any) -> OpenLake:
    lake = Lake(tmp_path / "lake")
    lake.prepare()
    settings = Settings(source=source, lake={"path": str(lake.root)})  # type: ignore[arg-type]
    return OpenLake.of(lake, settings)


def files(tmp_path: Path, path: Path, **more: Any) -> FileFeed:
    lake = opened(tmp_path, kind="files", path=str(path), **more)
    return FileFeed(lake.settings, lake, available_now=True)


def taken(tmp_path: Path, **source: Any) -> None:
    """A unit of the lake."""
    ends = {"start": {"plays": {"0": 0}}, "end": {"plays": {"0": 0}}, "topic_ids": {"plays": "id"}}
    opened(tmp_path).commit(Report(), "ingest", ends | source)


def test_the_folder_must_be_there_and_apart_from_the_lake(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    with pytest.raises(ConfigurationError, match="there is no folder"):
        files(tmp_path, folder).look()
    folder.mkdir()
    files(tmp_path, folder).look()
    within = tmp_path / "lake" / "in"
    within.mkdir()
    (tmp_path / "link").symlink_to(within)
    for path in (within, tmp_path, tmp_path / "lake", tmp_path / "link"):
        with pytest.raises(ConfigurationError, match="must not be in one another"):
            files(tmp_path, path).look()


def test_a_folder_that_does_not_answer_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(folder: DiskFolder, key: str = "") -> bool:
        raise OSError(errno.ESTALE, "Stale file handle", folder.path)

    monkeypatch.setattr(DiskFolder, "exists", stale)
    with pytest.raises(UnreachableError, match=r"source.path .* cannot be read: .*Stale"):
        files(tmp_path, tmp_path / "in").look()


def test_a_lake_of_files_stays_one(tmp_path: Path) -> None:
    files(tmp_path, tmp_path).check()
    taken(tmp_path, files=[])
    files(tmp_path, tmp_path, name="plays").check()
    with pytest.raises(ConfigurationError, match=r"source\.name: the lake has records of plays"):
        files(tmp_path, tmp_path, name="other").check()
    lake = opened(tmp_path)
    with pytest.raises(ConfigurationError, match=r"source\.kind: the lake has records of files"):
        KafkaFeed(lake.settings, lake, available_now=True, accept_loss=False).check()


def test_a_lake_of_topics_stays_one(tmp_path: Path) -> None:
    taken(tmp_path)
    with pytest.raises(ConfigurationError, match=r"source\.kind: the lake has records of Kafka"):
        files(tmp_path, tmp_path, name="plays").check()


def test_the_settings_name_the_feed(tmp_path: Path) -> None:
    lake = opened(tmp_path)
    assert isinstance(feed_of(lake.settings, lake, True, False), KafkaFeed)
    lake = opened(tmp_path, kind="files", path="/in", name="plays")
    assert isinstance(feed_of(lake.settings, lake, True, False), FileFeed)
    assert (lake.settings.topics, lake.settings.subject) == (["plays"], "plays-value")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('kind = "files"', "needs path"),
        ('kind = "files"\npath = "/in"\nname = "a/b"', r"source\.name"),
        ('kind = "bucket"', r"source\.kind"),
        ("settle_s = -1", r"source\.settle_s"),
        ('value = ""', r"source\.value"),
    ],
)
def test_settings_of_a_source_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"[source]\n{text}\n")
    with pytest.raises(ConfigurationError, match=why):
        load(path)
