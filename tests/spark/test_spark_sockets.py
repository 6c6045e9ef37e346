"""Who may talk to a session: each of its sockets is known, on the loopback, and answers nobody who lacks its secret.

Another user of the machine reaches the loopback, and can read the arguments of every process. A file of a private
folder, and the memory of a process, are beyond that user.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from scripts.local.artifacts import ROOT
from spark_app.units.spark import jvm
from tests.support.processes import listened
from tests.support.strangers import holding

pytestmark = pytest.mark.spark
CLIENT = ROOT / "tests" / "support" / "spark_client.py"


def ports(spark: SparkSession) -> dict[str, int]:
    """What each port of the session is for."""
    java: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    environment = java.org.apache.spark.SparkEnv.get()
    return {
        "rpc": int(spark.sparkContext.getConf().get("spark.driver.port") or 0),
        "blocks": environment.blockManager().blockManagerId().port(),
        "gateway": gateway.gateway_parameters.port,
        "callbacks": gateway._callback_server.port,
    }


def secret_of(spark: SparkSession) -> str:
    java: Any = spark.sparkContext._jvm
    secret: str = java.org.apache.spark.SparkEnv.get().securityManager().getSecretKey()
    return secret


def family() -> list[psutil.Process]:
    """The processes of the session; this one may have others, such as an object store of another test."""
    pid = jvm.jvm_pid()
    assert pid
    java = psutil.Process(pid)
    return [psutil.Process(), java, *java.children(recursive=True)]


def seen_of_processes() -> dict[str, str]:
    """Arguments and variables of each process of the session; a worker may end meanwhile."""
    seen = {}
    for process in family():
        with contextlib.suppress(psutil.NoSuchProcess):
            seen[f"arguments of {process.pid}"] = str(process.cmdline())
            seen[f"variables of {process.pid}"] = str(process.environ())
    return seen


def rows(spark: SparkSession) -> list[int]:
    """Those of a job that needs the JVM, its executor and a Python worker."""
    return spark.sparkContext.parallelize([1, 2], 2).map(lambda n: n + 1).collect()


def test_each_port_of_a_session_is_known_and_on_the_loopback(spark: SparkSession) -> None:
    assert rows(spark) == [2, 3]
    of_tests = set(listened(psutil.Process()))
    listening = [address for process in family() for address in listened(process)]
    known = ports(spark)
    assert {address.port for address in listening} - {address.port for address in of_tests} == {
        known["rpc"],
        known["blocks"],
        known["gateway"],
    }
    assert known["callbacks"] in {address.port for address in of_tests}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.parametrize(("secret", "reached"), [("own", True), ("none", False), ("another", False)])
def test_sparks_ports_answer_only_who_has_the_secret_of_this_start(
    spark: SparkSession, secret: str, reached: bool
) -> None:
    """The client that has it shows that the others were refused for lacking it."""
    shown = {"own": secret_of(spark), "none": "", "another": secrets.token_hex(32)}[secret]
    found = ask(spark, shown)
    assert [found[port].startswith("reached") for port in ("rpc", "blocks")] == [reached, reached], found
    assert rows(spark) == [2, 3]


def ask(spark: SparkSession, secret: str) -> dict[str, Any]:
    """What a client in a JVM of its own, and of another user where that is possible, makes of Spark's ports."""
    known = ports(spark)
    done = subprocess.run(
        [sys.executable, str(CLIENT), str(known["rpc"]), str(known["blocks"])],
        input=f"{secret}\n",
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in ("TMPDIR", "SPARK_LOCAL_DIRS")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_secret_is_in_no_setting_and_no_argument_and_no_variable_and_no_file(spark: SparkSession) -> None:
    secret = secret_of(spark)
    assert len(secret) >= 32
    assert rows(spark) == [2, 3]
    shown = {"settings": str(spark.sparkContext.getConf().getAll()), "set": str(spark.sql("set -v").collect())}
    shown |= seen_of_processes()
    for path in Path(os.environ["TMPDIR"]).rglob("*"):
        if path.is_file():
            shown[str(path)] = path.read_bytes().decode(errors="replace")
    assert len(shown) > 6
    assert [where for where, text in shown.items() if secret in text] == []


def said(port: int, text: str, awaited: bytes = b"") -> bytes:
    """What a port says to whoever sends this: up to what is awaited, else all until it hangs up or is silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60 if awaited else 5) as line:
        try:
            line.sendall(text.encode())
            while block := line.recv(4096):
                answer += block
                if awaited and awaited in answer:
                    break
        except (ConnectionError, TimeoutError):
            pass
    return answer


def test_the_gateway_of_the_jvm_asks_for_its_token(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    port, token = gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token
    call = "c\nz:java.lang.Integer\ntoHexString\ni51966\ne\n"
    assert b"cafe" in said(port, f"A\n{token}\n{call}", awaited=b"cafe")
    assert b"cafe" not in said(port, call)
    assert b"cafe" not in said(port, f"A\n{'0' * len(token)}\n{call}")
    assert token not in str(seen_of_processes())


def test_python_is_called_back_by_its_jvm_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The port that py4j opens for it lets everybody call any method of what Spark was given, unless it has a token."""
    taken: list[int] = []
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = stream.writeStream.foreachBatch(lambda _, batch: taken.append(batch))
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        port = ports(spark)["callbacks"]
        gateway: Any = spark.sparkContext._gateway
        handlers = [name for name in gateway.gateway_property.pool.dict if name.startswith("p")]
        assert handlers
        for name in handlers:
            assert said(port, f"c\n{name}\n__setattr__\nsfunc\nsbroken\ne\n") == b""
            assert b"!y" not in said(port, f"A\n{'0' * 64}\nc\n{name}\n__setattr__\nsfunc\nsbroken\ne\n")
        seen = len(taken)
        deadline = time.monotonic() + 60
        while running.isActive and len(taken) < seen + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (running.isActive, len(taken) >= seen + 2) == (True, True), running.exception()
    finally:
        running.stop()


def test_silent_clients_of_the_callback_server_do_not_end_it(spark: SparkSession, tmp_path: Path) -> None:
    """Without bounds the callback server would end, and the app with it."""
    taken: list[int] = []
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = stream.writeStream.foreachBatch(lambda _, batch: taken.append(batch))
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    port, own = ports(spark)["callbacks"], psutil.Process()
    before = own.num_fds()
    with holding(port, 1_300) as held:
        try:
            seen = len(taken)
            deadline = time.monotonic() + 60
            while running.isActive and len(taken) < seen + 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert (running.isActive, len(taken) >= seen + 2) == (True, True), running.exception()
            assert held == 1_300
            assert own.num_fds() < before + 2 * jvm.MOST_STRANGERS
        finally:
            running.stop()
