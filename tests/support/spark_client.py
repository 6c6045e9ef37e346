"""A client of Spark's own protocols, in a JVM of its own: `python spark_client.py RPC_PORT BLOCK_PORT`, the secret as a
line of standard input, empty for none. It becomes another user where it may. One line of JSON says how far it came.

What is imported is imported before it changes the user, who may not be allowed to read this Python.
"""

import contextlib
import encodings.idna  # noqa: F401
import json
import os
import sys
import tempfile  # noqa: F401
import unittest  # noqa: F401
from pathlib import Path

import py4j.clientserver  # noqa: F401
import pyspark
import pyspark.testing.utils
from pyspark.java_gateway import launch_gateway

NOBODY = 65534
SPARK = Path(pyspark.__file__).parent


def become_another() -> None:
    """Nobody's rights, if this is root and nobody may run Spark."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    if os.getuid() != 0:
        return
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    allowed = all(os.access(path, os.R_OK, effective_ids=True) for path in (java, SPARK / "jars"))
    os.seteuid(0)
    os.setegid(0)
    if allowed:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def main(rpc_port: int, block_port: int, secret: str) -> None:
    become_another()
    os.environ["SPARK_HOME"] = str(SPARK)
    gateway = launch_gateway()
    jvm = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    if secret:
        conf.set("spark.authenticate", "true").set("spark.authenticate.secret", secret)
        conf.set("spark.network.crypto.enabled", "true")
    security = jvm.org.apache.spark.SecurityManager(
        conf,
        jvm.scala.Option.empty(),
        getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")(),
    )
    found = {"uid": os.getuid(), "rpc": call(jvm, gateway, conf, security, rpc_port)}
    found["blocks"] = open_block(jvm, gateway, conf, security, block_port, secret)
    print(json.dumps(found), flush=True)
    gateway.proc.kill()
    os._exit(0)


def call(jvm, gateway, conf, security, port: int) -> str:
    """Ask for the endpoint of the driver's executor and, without the right secret, to stop it."""
    rpc = module(jvm, "org.apache.spark.rpc.RpcEnv").create("client", "127.0.0.1", 0, conf, security, True)
    address = jvm.org.apache.spark.rpc.RpcAddress("127.0.0.1", port)
    try:
        executor = rpc.setupEndpointRef(address, "LocalSchedulerBackendEndpoint")
    except Exception as error:
        return f"refused: {error}"
    if not conf.contains("spark.authenticate.secret"):
        stop = jvm.java.lang.Class.forName("org.apache.spark.scheduler.local.StopExecutor")
        message = stop.getConstructors()[0].newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        with contextlib.suppress(Exception):  # who stops answers no more
            executor.askSync(message, module(jvm, "scala.reflect.ClassTag").Any())
    return "reached"


def open_block(jvm, gateway, conf, security, port: int, secret: str) -> str:
    """Ask for a block that is not there: who says so has read the question."""
    transport = module(jvm, "org.apache.spark.network.netty.SparkTransportConf").fromSparkConf(
        conf, "shuffle", 1, jvm.scala.Option.empty(), jvm.scala.Option.empty()
    )
    context = jvm.org.apache.spark.network.TransportContext(
        transport, jvm.org.apache.spark.network.server.NoOpRpcHandler()
    )
    bootstraps = jvm.java.util.ArrayList()
    if secret:
        user = security.getSaslUser()
        bootstraps.add(jvm.org.apache.spark.network.crypto.AuthClientBootstrap(transport, user, security))
    blocks = gateway.new_array(jvm.java.lang.String, 1)
    blocks[0] = "broadcast_999"
    question = jvm.org.apache.spark.network.shuffle.protocol.OpenBlocks("app", "driver", blocks).toByteBuffer()
    try:
        client = context.createClientFactory(bootstraps).createClient("127.0.0.1", port)
        client.sendRpcSync(question, 20_000)
    except Exception as error:
        return (
            "reached" if "BlockNotFoundException: Block broadcast_999 not found" in str(error) else f"refused: {error}"
        )
    return "reached"


def module(jvm, name: str):
    """Scala's object of that name."""
    return jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.readline().strip())
