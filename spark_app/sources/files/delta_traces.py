"""What tells that a folder is, was or has become a Delta table, and what the app says if that changes."""

from __future__ import annotations

from spark_app.model.errors import ContractError
from spark_app.sources.files.folder import SourceFolder

LOG = "_delta_log"
REMEDY = "take the table into a new lake, or restore its log"
PLAIN = 'to go on with plain files set source.format, for example to "parquet"'


def began_in(state: str) -> str:
    """The file that says which table is taken, from which version on. `state` is the lake's folder of taken files."""
    return f"{state}/began.json"


def lost(folder: SourceFolder) -> ContractError:
    what = f"{folder.path} was a Delta table and has no {LOG} any more, so it cannot be said which of its files are new"
    return ContractError(what, f"mount the folder if it is empty; else {REMEDY}")


def another_table(folder: SourceFolder, known: str, found: str) -> ContractError:
    """The arguments are ids of tables."""
    what = f"{folder.path}: another Delta table is there ({found}) than the one that was taken ({known})"
    return ContractError(what, "restore the table that was taken, or take the other one into a new lake")


def appeared(folder: SourceFolder, any_taken: bool) -> ContractError:
    """
    Args:
        any_taken: files of the folder were taken as plain ones.
    """
    what = f"{folder.path} has become a Delta table: it has a {LOG} now"
    if not any_taken:
        return ContractError(
            f"{what}, and nothing was taken yet", "start the app again: it takes the folder as a table"
        )
    return ContractError(
        f"{what}, and files were taken from it as plain ones before", f"{PLAIN}, or take the table into a new lake"
    )


def not_said(folder: SourceFolder, began: str) -> ContractError:
    """`began` names the file that is missing."""
    return ContractError(
        f"{began} is missing, and no unit says up to which version of its log {folder.path} was taken: either its "
        f"files were taken as plain ones before it had a {LOG}, or that file was lost",
        f"{PLAIN}; if the table was followed, restore the file from a backup of the lake; or take the table into a new "
        "lake",
    )
