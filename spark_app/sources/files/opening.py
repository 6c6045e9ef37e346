"""Opens the folder of a source, on a disk or in a bucket."""

from __future__ import annotations

from spark_app.model.place import Place
from spark_app.sources.files.folder import DiskFolder, SourceFolder


def open_folder(place: Place) -> SourceFolder:
    """The folder at a place."""
    if not place.scheme:
        return DiskFolder(place.root)
    from spark_app.sources.files.bucket_folder import BucketFolder  # its libraries take time to load

    return BucketFolder(place)
