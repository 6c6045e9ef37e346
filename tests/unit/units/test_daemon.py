"""How Spark's Python workers begin and end."""

import os
import subprocess
import sys

import pytest

from spark_app.model.versions import UMASK

ENDING = """
import socket
from spark_app.units.spark import daemon
here, there = socket.socketpair()
there.close()
print(daemon.work(here, True))
"""


def test_a_worker_that_gets_no_more_tasks_ends_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


@pytest.mark.parametrize(("given", "umask"), [({UMASK: "022"}, 0o022), ({UMASK: "007"}, 0o007), ({}, 0o077)])
def test_a_worker_of_a_cluster_takes_the_umask_of_the_app(given: dict[str, str], umask: int) -> None:
    code = "import os; from spark_app.units.spark import daemon; daemon.set_umask(); print(os.umask(0))"
    environment = {name: value for name, value in os.environ.items() if name != UMASK} | given
    run = [sys.executable, "-c", code]
    ended = subprocess.run(run, capture_output=True, text=True, check=True, env=environment, umask=0o077)
    assert int(ended.stdout) == umask
