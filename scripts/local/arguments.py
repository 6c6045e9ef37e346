"""Helpers for the command lines of the scripts. Standard library only."""

import argparse
from typing import NoReturn

from scripts.local.errors import USAGE, LocalError


class Parser(argparse.ArgumentParser):
    """Wrong usage raises a LocalError of one line that names the command's help."""

    def error(self, message: str) -> NoReturn:
        raise LocalError(f"{message}; see {self.prog.split()[0]} --help", USAGE)


def positive(text: str) -> int:
    """Parse a number above 0."""
    number = text.replace(",", "").replace("_", "")
    if not number.isdecimal() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(number)
