"""`./scripts/run --accept-loss` beside a stack whose app is held with 65: records the lost offset ranges, skips them
and starts the app again. The stack's own app never gets the option, so later losses are not accepted."""

import os
import subprocess
import sys

from scripts.local.errors import USAGE, LocalError
from scripts.local.options import Options
from scripts.local.program import Program
from scripts.local.supervision import Supervisor
from spark_app.model.errors import ExitCode


def accept_loss(options: Options) -> int:
    """Run one app that accepts the loss and ingests what Kafka has; returns its exit code. After 0 the stack's app is
    started again."""
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
