"""How Spark's Python workers end."""

import subprocess
import sys

ENDING = """
import socket
from spark_app.spark import daemon
here, there = socket.socketpair()
there.close()
print(daemon.work(here, True))
"""


def test_a_worker_that_gets_no_more_tasks_ends_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")
