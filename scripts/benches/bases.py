"""The app of this tree or of an earlier commit, with its own settings."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from scripts.benches.sides import BASE, Side
from scripts.local import environment
from scripts.local.artifacts import ROOT
from scripts.local.downloads import CACHE
from scripts.local.errors import USAGE, LocalError

ASK = """
import json, pathlib, sys
from scripts.benches.servers import app_settings
print(json.dumps(app_settings(pathlib.Path(sys.argv[1]), *sys.argv[2:])))
"""


@dataclass(frozen=True)
class App:
    """An app whose files are below `root`."""

    root: Path

    @classmethod
    def of(cls, side: Side, folder: Path) -> App:
        """This tree's app for the side `app`; for `base:COMMIT` that of the commit, extracted below the folder."""
        # Without the colon of the side: the folder is part of a class path.
        return cls.at(side.variant, folder / f"{BASE}-{side.variant}") if side.variant else cls(ROOT)

    @classmethod
    def at(cls, commit: str, folder: Path) -> App:
        """The app at a commit, extracted from this repository into the folder; the packages are the current ones."""
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
        if packed.returncode:
            raise LocalError(f"base:{commit}: {packed.stderr.decode().strip()}", USAGE)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        jars = Path(CACHE.name) / "jars"
        shutil.copytree(ROOT / jars, folder / jars, copy_function=os.symlink)  # it downloads missing ones
        return cls(folder)

    def settings(self, lake: Path, brokers: str, registry: str) -> dict[str, str]:
        """Variables for the app, made by its own code, because their names may have changed since."""
        surroundings = os.environ | environment.shared(os.environ) | {"PYTHONPATH": str(self.root)}
        command = [sys.executable, "-c", ASK, str(lake), brokers, registry]
        done = subprocess.run(command, cwd=self.root, env=surroundings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LocalError(f"the settings of {self.root.name} cannot be read: {done.stderr.splitlines()[-1]}")
        found: dict[str, str] = json.loads(done.stdout)
        return found
