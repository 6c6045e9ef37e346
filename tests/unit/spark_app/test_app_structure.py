"""What may import what: the rules that keep executors light, the command line fast and texts from outside harmless."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.storage.lake import STATE, Lake

ROOT = Path(__file__).parents[3]
APP = ROOT / "spark_app"
MAY_USE_SPARK = (
    {
        "spark/session.py",
        "spark/jvm.py",
        "spark/daemon.py",
        "spark/task_places.py",
        "spark/standalone.py",
        "kafka/spark_source.py",
        "gold/compute.py",
    }
    | {f"app/{name}.py" for name in ("executor_count", "executor_watch", "feeds", "pipeline", "shell", "training")}
    | {"gold/worker_tasks.py"}
    | {
        f"driver/{name}.py"
        for name in (
            "file_rows",
            "file_stream",
            "ingest",
            "deferred",
            "unit",
            "reader",
            "job_input",
            "query_lag",
            "size_backoff",
            "worker_check",
            "worker_merger",
            "streaming",
        )
    }
    | {
        f"recovery/{name}.py"
        for name in ("replay", "replay_queue", "rebuild", "renewal", "classification", "executor", "offline")
    }
)
# Each package imports only those before it. A worker loads `decode`, `kafka`, `expectations`, `projections`,
# `references` and `worker`, and nothing that is behind.
ORDER = (
    "model",
    "settings",
    "storage",
    "ops",
    "decode",
    "schemas",
    "kafka",
    "expectations",
    "projections",
    "references",
    "worker",
    "store",
    "intake",
    "followers",
    "events",
    "metrics",
    "queries",
    "alerts",
    "process",
    "spark",
    "driver",
    "gold",
    "recovery",
    "backtest",
    "lineage",
    "page",
    "audit",
    "app",
    "cli",
)


FOLLOWERS = ("gold", "events")  # packages with a follower of the units


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder).as_posix(), ast.parse(path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of what is imported anywhere in the file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is imported"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def users(folder: Path, *packages: str) -> set[str]:
    """Files that import one of the packages."""
    return {
        name
        for name, tree in trees(folder)
        for found in imports(tree)
        if any(found == package or found.startswith(f"{package}.") for package in packages)
    }


def test_spark_is_used_where_it_must_be() -> None:
    assert users(APP, "pyspark") <= MAY_USE_SPARK


def test_private_parts_of_pyspark_are_used_in_one_file() -> None:
    java = r"_j(vm|sc|df|dd|sq|rdd|c|map|schema|sparkSession)"
    private = re.compile(rf"{java}|_gateway|_sc|_active_spark_context|_instantiatedSession")
    found = {
        name
        for name, tree in trees(APP)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and private.fullmatch(node.attr)
    }
    assert found == {"spark/jvm.py"}


def test_workers_know_neither_spark_nor_the_driver() -> None:
    ours = ("settings.config", "storage.lake", "schemas", "store", "driver", "gold")
    for package in ("worker", "decode"):
        assert users(APP / package, "pyspark", *(f"spark_app.{part}" for part in ours)) == set()


def test_every_package_has_its_place() -> None:
    assert sorted(ORDER) == sorted(path.parent.name for path in APP.glob("*/__init__.py"))
    assert [path.name for path in APP.glob("*.py")] == ["__init__.py", "__main__.py"]


def test_followers_do_not_know_each_other() -> None:
    for package in FOLLOWERS:
        assert users(APP / package, *(f"spark_app.{other}" for other in FOLLOWERS if other != package)) == set()


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package: str) -> None:
    behind = ORDER[ORDER.index(package) + 1 :]
    assert users(APP / package, *(f"spark_app.{name}" for name in behind)) == set()


def test_the_process_that_workers_are_forked_from_loads_what_they_need() -> None:
    """Each worker would load it by itself, for half a second of CPU."""
    code = "import sys, spark_app.spark.daemon; print('spark_app.worker.task' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_no_two_modules_share_a_name() -> None:
    names = [path.name for path in APP.rglob("*.py") if path.name != "__init__.py"]
    assert [name for name in names if names.count(name) > 1] == []


# Calls that reach files, and what the modules outside `storage` that make them reach.
FILE_CALLS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "mkdir", "makedirs", "mkdtemp"}
FILE_CALLS |= {
    "glob",
    "rglob",
    "iterdir",
    "listdir",
    "scandir",
    "walk",
    "stat",
    "lstat",
    "is_file",
    "is_dir",
    "getsize",
}
FILE_CALLS |= {"unlink", "rmdir", "rmtree", "remove", "rename", "link", "hardlink_to", "symlink_to", "fsync", "OSFile"}
NOT_OF_A_LAKE = {
    "spark/cluster.py": "the secret of a cluster",
    "spark/standalone.py": "the options of Spark's own servers",
    "app/training.py": "the class archive",
    "audit/acks.py": "the acks of a producer",
    "driver/schema_check.py": "the .proto file that somebody wants to register",
    "intake/source_folder.py": "the folder of files that are taken in",
    "page/frame.py": "links to views",
    "page/views/schema_decision.py": "a dialog",
    "page/views/schema_list.py": "links to views",
    "page/views/schema_page.py": "links to views",
    "page/views/table.py": "links to views",
    "process/children.py": "/proc",
    "process/temporary_folders.py": "temporary folders",
    "queries/asking.py": "/proc",
    "schemas/descriptors.py": "the temporary folder of protoc",
    "schemas/rule_options.py": "the bundled options of protovalidate",
    "schemas/well_known.py": "the installed packages",
    "settings/config.py": "the settings file and files of secrets",
    "spark/jvm.py": "/dev/null, and the lock file, which the JVM opens",
    "spark/session.py": "jars and temporary folders",
    "store/durability.py": "/proc",
}
LOCAL_ONLY = {
    "app/training.py": "Spark's checkpoint",
    "driver/ingest.py": "Spark's checkpoint",
    "driver/streaming.py": "Spark's checkpoint",
    "store/checkpoint.py": "Spark's checkpoint",
}


def test_files_of_a_lake_are_reached_through_the_storage() -> None:
    """All other code names them by keys. Only `path` makes a local path of a key."""
    reaching, local = set(), set()
    for name, tree in trees(APP):
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        methods = [f for f in calls if isinstance(f, ast.Attribute)]
        of_lakes = [
            f for f in methods if ast.unparse(f.value).split(".")[-1] in ("lake", "_lake", "storage", "_storage")
        ]
        names = {f.attr for f in methods if f not in of_lakes} | {f.id for f in calls if isinstance(f, ast.Name)}
        reaching |= {name} if names & FILE_CALLS else set()
        local |= {name} if any(f.attr == "path" for f in of_lakes) else set()
    reaching -= {name for name in reaching if name.startswith("storage/")} | (LOCAL_ONLY.keys() - NOT_OF_A_LAKE.keys())
    assert reaching == NOT_OF_A_LAKE.keys()
    assert local - {"storage/lake.py", "storage/local.py"} == LOCAL_ONLY.keys()


def test_keys_of_the_state_stand_in_one_place_and_in_the_readme() -> None:
    keys = {key for name, key in vars(Lake).items() if isinstance(key, str) and key.startswith(f"{STATE}/")}
    readme = (APP / "README.md").read_text()
    assert [key for key in keys if f"    {key}" not in readme and key != Lake.ledger] == []
    elsewhere = []
    for name, tree in trees(APP):
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        parts = [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
        elsewhere += [name] if any(text.startswith(f"{STATE}/") for text in texts) else []
        elsewhere += [name] if any("lake.state}/" in part for part in parts) else []
    assert sorted(set(elsewhere)) == ["storage/failpoints.py", "storage/reference_files.py"]


def test_only_state_files_and_committed_files_are_written() -> None:
    """Each write of a file that must last has its failpoints there, or says that it needs none."""
    writing = set()
    for name, tree in trees(APP):
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        methods = {f.attr for f in calls if isinstance(f, ast.Attribute) and ast.unparse(f.value).endswith("storage")}
        writing |= {name} if methods & {"replace", "put_if_absent", "put_file", "append"} else set()
    assert writing == {
        "events/spool.py",
        "storage/delete_rounds.py",
        "storage/page_files.py",  # of a process beside the app
        "storage/state_files.py",
        "store/log_entry.py",
        "store/manifest.py",
        "worker/files.py",
    }


def test_nothing_is_too_large_to_be_read() -> None:
    """Lines of a file, lines of a function, parameters of a constructor."""
    found = []
    for name, tree in trees(APP):
        lines = (APP / name).read_text().count("\n")
        found += [f"{name}: {lines} lines"] if lines > 400 else []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                found += [f"{name}: {node.name} has {length} lines"] if length > 60 else []
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if node.name == "__init__" and len(given) > 8:  # self among them
                    found.append(f"{name}:{node.lineno}: a constructor of {len(given) - 1} parameters")
    assert found == []


def test_the_audit_shares_no_code_with_what_it_audits() -> None:
    ours = (
        "worker",
        "driver",
        "gold",
        "store",
        "process",
        "recovery",
        "schemas",
        "spark",
        "app",
        "ops",
        "decode",
        "kafka.consumer",
        "kafka.topics",
        "kafka.spark_source",
        "kafka.transactions",
    )
    assert users(APP / "audit", "pyspark", "ptars", *(f"spark_app.{part}" for part in ours)) == set()


def test_the_parts_do_not_know_each_other() -> None:
    assert users(APP, "producer", "scripts", "tests") == set()
    assert users(ROOT / "producer", "spark_app", "scripts", "tests") == set()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("spark_app.cli.entry", ["pyspark", "py4j", "deltalake", "confluent_kafka", "pyarrow"]),
        ("spark_app.page.server", ["pyspark", "py4j", "deltalake", "confluent_kafka", "pyarrow", "duckdb"]),
        ("spark_app.backtest", ["pyspark", "py4j", "spark_app.audit", "spark_app.recovery"]),
        ("spark_app.lineage.lake_graph", ["pyspark", "py4j", "spark_app.audit", "spark_app.recovery"]),
        (
            "spark_app.audit",
            [
                "pyspark",
                "py4j",
                "ptars",
                "spark_app.worker",
                "spark_app.driver",
                "spark_app.gold",
                "spark_app.store",
                "spark_app.schemas",
            ],
        ),
        (
            "spark_app.worker.task",
            ["pyspark", "pydantic", "confluent_kafka", "spark_app.settings", "spark_app.storage.lake"],
        ),
    ],
)
def test_importing_does_not_load(module: str, unwanted: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_from_outside_can_become_code() -> None:
    banned = {"eval", "exec", "compile", "__import__", "importlib.import_module", "os.system", "os.popen"}
    banned |= {"pickle.loads", "pickle.load", "marshal.loads"}
    found = []
    for name, tree in trees(APP):
        loaders = [what for what in imports(tree) if what.split(".")[0] == "importlib"]
        found += [f"{name}: imports {what}" for what in loaders if not what.startswith("importlib.metadata.")]
        for function, call in calls(tree):
            shell = any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in call.keywords)
            if function in banned or shell:
                found.append(f"{name}:{call.lineno}: {function}")
    assert found == []


def test_protoc_writes_descriptors_only() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees(APP)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "_out=" in node.value
        if "descriptor_set_out=" not in node.value
    ]
    assert found == []
    assert not any("python_out" in path.read_text() for path in APP.rglob("*.py"))


def test_no_file_is_named_for_being_useful() -> None:
    banned = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [path for path in APP.rglob("*.py") if path.stem in banned or path.stem.endswith("_v2")] == []
