"""./scripts/run --accept-loss beside a stack whose app is held with 65: what Kafka no longer has is written down and
skipped, once, and the app starts again. The app that the stack starts never has the option: no later loss is accepted.
"""

import os
import subprocess
import sys

from scripts.local.errors import USAGE, LocalError
from scripts.local.options import Options
from scripts.local.program import Program
from scripts.local.supervision import Supervisor
from spark_app.model.errors import ExitCode


def accept_loss(options: Options) -> int:
    """The exit code of the app that accepts and takes what is there; if it went well, the stack's app is back."""
    supervisor = Supervisor(options.state)
    path = supervisor.run / "spark.json"
    if not supervisor.processes() or not path.exists():
        raise LocalError(f"no stack runs on {options.state}: start ./scripts/run first, then run this command", USAGE)
    app = Program.read(path)
    command = [*app.command, "--accept-loss", "--available-now"]
    code = subprocess.call(command, env=os.environ | app.environment, cwd=app.folder)
    if code in (ExitCode.DONE, ExitCode.BUMP):
        supervisor.relaunch(app.name)
        print("the loss is recorded in lost_events, and the app restarts", file=sys.stderr)
    return code
