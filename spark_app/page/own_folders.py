"""What `protolake page` writes to in a lake: made ahead for a page that may only read the rest of it, or that comes
before the app, which makes the lake."""

from __future__ import annotations

from spark_app.followers.events import spool
from spark_app.lake.files.disk import is_full
from spark_app.lake.lake import Lake
from spark_app.page.alerts.book import WRITER
from spark_app.page.files import PageFiles


def make_folders(lake: Lake) -> None:
    """Make the folders, and the token in one of them, as far as they are not there.

    Raises:
        ConfigurationError: this user may not write to the lake, or the file of the token cannot be used.
        OSError: the disk is full.
    """
    try:
        lake.here.create_folders(lake.page)
        lake.storage.create_folders(lake.requests, spool.folder(lake, WRITER))
        PageFiles(lake).token()
    except OSError as error:
        if is_full(error):
            raise
        raise lake.not_writable(error) from None
