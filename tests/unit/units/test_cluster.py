"""Settings of a cluster, its secret, and errors of executors that no record is the cause of."""

import os
import socket
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.model.address import StorageAddress
from spark_app.model.errors import ConfigurationError, UnreachableError
from spark_app.model.versions import OTHER_VERSIONS, PACKAGES, differences, own_versions
from spark_app.settings import config
from spark_app.settings.connections import KafkaSettings
from spark_app.units.driver import worker_check
from spark_app.units.spark import cluster
from tests.support.secure import Authority


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef\n")
    return path


def load(tmp_path: Path, text: str) -> config.Settings:
    path = tmp_path / "settings.toml"
    path.write_text(f"[spark]\n{text}\n")
    return config.load(path)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_a_local_master_is_no_cluster(tmp_path: Path, master: str) -> None:
    assert not load(tmp_path, f'master = "{master}"').spark.on_cluster


@pytest.mark.parametrize("master", ["spark://a:7077", "spark://a:7077,b:7077", "k8s://https://a:6443", "yarn"])
def test_a_cluster_listens_on_the_loopback_unless_asked(tmp_path: Path, master: str) -> None:
    settings = load(tmp_path, f'master = "{master}"\nauth_secret_file = "/a"')
    assert settings.spark.on_cluster
    options = cluster.options(settings, Path("/app"))
    assert (options["spark.driver.host"], options["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert options["spark.executorEnv.PYTHONPATH"] == "/app"
    far = load(tmp_path, f'master = "{master}"\nauth_secret_file = "/a"\ndriver_host = "b"\nexecutor_python = "/p"')
    options = cluster.options(far, Path("/app"))
    assert (options["spark.driver.host"], options["spark.driver.bindAddress"]) == ("b", "b")
    assert "spark.executorEnv.PYTHONPATH" not in options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('master = "mesos://a:1"', "spark.master"),
        ('master = "spark://a"', "spark.master"),
        ('master = "spark://a:70770"', "spark.master"),
        ('master = "spark://a:7077"', "auth_secret_file is empty"),
        ('options = { "executor.memory" = "2g" }', "each begins with spark."),
        ('options = { "spark.authenticate.secret" = "x" }', "use auth_secret_file"),
        ('options = { "spark.hadoop.fs.s3a.access.key" = "x" }', "may be a secret"),
        ('options = { "spark.hadoop.fs.azure.account.key.a" = "x" }', "may be a secret"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(tmp_path, text)


def test_a_secret_is_given_in_a_file_that_is_gone_afterwards(secret: Path, tmp_path: Path) -> None:
    spark = load(tmp_path, f'master = "spark://a:7077"\nauth_secret_file = "{secret}"').spark
    with cluster.secret_for_jvm(spark):
        arguments = os.environ[cluster.SUBMIT].split()
        given = Path(arguments[1])
        assert given.read_text() == "spark.authenticate.secret=0123456789abcdef\n"
        assert given.stat().st_mode & 0o077 == 0
    assert not given.exists()
    assert cluster.SUBMIT not in os.environ


def test_a_secret_that_is_none_is_refused(secret: Path, tmp_path: Path) -> None:
    assert cluster.read_secret(str(secret)) == "0123456789abcdef"
    secret.chmod(0o640)
    with pytest.raises(ConfigurationError, match=f"chmod 600 {secret}"):
        cluster.read_secret(str(secret))
    secret.chmod(0o600)
    secret.write_text("short")
    with pytest.raises(ConfigurationError, match="at least 16 printable"):
        cluster.read_secret(str(secret))
    with pytest.raises(ConfigurationError, match="No such file"):
        cluster.read_secret(str(tmp_path / "none"))


def test_one_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster.look_for_master(f"spark://127.0.0.1:9,127.0.0.1:{port}")
    with pytest.raises(cluster.MasterUnreachable, match="is it up"):
        cluster.look_for_master(f"spark://127.0.0.1:{port}")


OWN = "spark_app.model.errors"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("java.lang.ClassNotFoundException: org.apache.spark.sql.kafka010.X", UnreachableError),
        ("Job 3 cancelled because SparkContext was shut down", UnreachableError),
        ("Master removed our application: FAILED", UnreachableError),
        ("Lost task 0.3 in stage 1.0 (TID 4) (10.0.0.7 executor 2): No module named 'spark_app'", ConfigurationError),
        (f"Error from python worker: {OTHER_VERSIONS}: protolake 1", ConfigurationError),
        ('Cannot run program "python3": error=2, No such file or directory', ConfigurationError),
        ('Cannot run program "python3": error=12, Cannot allocate memory', UnreachableError),
        ("OSError: When reading for key 'x': AWS Error NETWORK_CONNECTION during HeadObject", UnreachableError),
        ("OSError: When reading information for key 'x': AWS Error NO_SUCH_KEY during GetObject", type(None)),
        (f"Traceback:\n  File x\n{OWN}.ConfigurationError: silver.hmac_key_file: cannot read /k", ConfigurationError),
        (f"Traceback:\n  File x\n{OWN}.UnreachableError: the key was changed", UnreachableError),
        (f"Traceback:\n  File x\n{OWN}.ContractError: no", type(None)),
        ("Python worker exited unexpectedly (crashed)", type(None)),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", type(None)),
    ],
)
def test_only_what_a_record_cannot_cause_is_no_attempt(said: str, kind: type) -> None:
    cause = cluster.cause_of(RuntimeError(said))
    assert type(cause) is kind
    assert ("10.0.0.7" in said) == ("a worker on 10.0.0.7 cannot be used" in str(cause))


@pytest.mark.parametrize("text", ["a b" * 8, "a" * 16 + "\\b", "a" * 20 + "\n" + "b" * 20])
def test_a_secret_that_java_would_read_otherwise_is_refused(secret: Path, text: str) -> None:
    secret.write_text(text)
    with pytest.raises(ConfigurationError, match="openssl rand"):
        cluster.read_secret(str(secret))


def test_differences_name_what_is_other() -> None:
    own = own_versions()
    assert set(own) == {"protolake", "python", *PACKAGES}
    assert differences(own, own) == ""
    assert "pyarrow none instead of" in differences(own, {name: own[name] for name in own if name != "pyarrow"})
    other = own | {"pyarrow": "1.0"}
    assert differences(own, other) == f"pyarrow 1.0 instead of {own['pyarrow']}"


def test_a_worker_with_another_key_of_hmac_is_named(tmp_path: Path) -> None:
    key, lake = tmp_path / "hmac.key", Lake(StorageAddress(str(tmp_path / "lake")))
    lake.identity()
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    ask = worker_check._check_of(lake, str(key), None, None)
    assert [wrong for _, wrong in ask([1])] == [""]
    key.write_bytes(b"l" * 32)
    assert [wrong for _, wrong in ask([1])] == [
        f"silver.hmac_key_file: {key} there is another key than on the machine of the app"
    ]
    key.unlink()
    [(_, wrong)] = ask([1])
    assert wrong.startswith(f"silver.hmac_key_file: cannot read {key}")
    assert [wrong for _, wrong in worker_check._check_of(lake, "", None, None)([1])] == [""]


def test_a_worker_without_the_files_of_kafka_is_named(tmp_path: Path) -> None:
    lake, authority, password = Lake(StorageAddress(str(tmp_path / "lake"))), tmp_path / "ca.pem", tmp_path / "password"
    lake.identity()
    kafka = KafkaSettings(
        brokers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="app",
        sasl_password_file=str(password),
        ca_file=str(authority),
    )
    ask = worker_check._check_of(lake, "", kafka, None)

    def said() -> str:
        [(host, wrong)] = ask([1])
        assert host == socket.gethostname()
        return wrong

    assert "kafka.sasl_password_file: cannot read" in said()
    password.write_text("secret")
    assert "ssl.ca.location failed" in said()
    assert "secret" not in said()
    authority.write_bytes(Path(Authority(tmp_path / "tls").ca_file).read_bytes())
    assert said() == ""
