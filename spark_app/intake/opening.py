"""Opens the folder of a source, on a disk or in a bucket."""

from __future__ import annotations

from spark_app.intake.source_folder import DiskFolder, SourceFolder
from spark_app.model.place import Place


def open_folder(place: Place) -> SourceFolder:
    """The folder at a place."""
    if not place.scheme:
        return DiskFolder(place.root)
    from spark_app.intake.bucket_folder import BucketFolder  # its libraries take time to load

    return BucketFolder(place)
