"""What may import what: the rules that keep executors light, the command line fast and texts from outside harmless."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_app.lake.lake import STATE, Lake

ROOT = Path(__file__).parents[2]
APP = ROOT / "spark_app"
MAY_USE_SPARK = {
    "sources/kafka/spark_source.py",
    "followers/gold/compute.py",
    "followers/gold/worker_tasks.py",
    "followers/registry.py",
    *(
        f"followers/gold/sql_tables/{name}.py"
        for name in ("follower", "plans", "result_files", "sources", "statements")
    ),
    "audit/check_sql.py",
    *(f"app/{name}.py" for name in ("pipeline", "shell", "training")),
    *(f"units/spark/{name}.py" for name in ("cluster", "daemon", "jvm", "session")),
    *(
        f"units/driver/{name}.py"
        for name in (
            "deferred",
            "executor_watch",
            "feeds",
            "file_stream",
            "ingest",
            "job_input",
            "reader",
            "streaming",
            "unit",
            "worker_check",
            "worker_merger",
        )
    ),
    *(f"recovery/{name}.py" for name in ("classification", "executor", "rebuild", "renewal", "replay")),
}
# The way of a record, and then what people do with a lake. Each package imports only those before it.
ORDER = (
    "model",
    "settings",
    "lake",
    "protobuf",
    "sources",
    "tables",
    "units",
    "followers",
    "recovery",
    "audit",
    "page",
    "app",
)
LOADED_BY_WORKERS = "spark_app.units.worker.task"
NOT_FOR_READERS = ["pyspark", "py4j", "spark_app.audit", "spark_app.recovery.executor", "spark_app.recovery.requests"]
NOT_FOR_WORKERS = (
    "pyspark",
    "spark_app.settings",
    "spark_app.lake.lake",
    "spark_app.lake.delta.commit",
    "spark_app.lake.delta.manifest",
    "spark_app.protobuf.changes",
    "spark_app.protobuf.schemas",
    "spark_app.units.driver",
    "spark_app.units.spark",
    "spark_app.followers",
)


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
    assert found == {"units/spark/jvm.py"}


def modules() -> dict[str, ast.Module]:
    """By their full names; a package has its own name."""
    found = {}
    for name, tree in trees(APP):
        parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
        found[".".join(["spark_app", *parts]).removesuffix(".__init__")] = tree
    return found


def when_loaded(tree: ast.AST) -> Iterator[str]:
    """What a file imports as it is loaded: not what its functions import, nor what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        yield from when_loaded(node)


def closure(module: str) -> set[str]:
    """All modules that are loaded with one, ours and others."""
    ours, found, open_ends = modules(), set[str](), [module]
    while open_ends:
        name = open_ends.pop()
        if name in found:
            continue
        found.add(name)
        if name not in ours:  # of others, or a name inside of a module
            open_ends += [name.rpartition(".")[0]] if name.startswith("spark_app.") else []
            continue
        open_ends += [".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)]
        open_ends += when_loaded(ours[name])
    return found


def test_workers_load_neither_spark_nor_settings_nor_the_driver() -> None:
    loaded = closure(LOADED_BY_WORKERS)
    assert "spark_app.protobuf.decode.decoder" in loaded
    assert {name for name in loaded for part in NOT_FOR_WORKERS if name == part or name.startswith(f"{part}.")} == set()


def test_every_package_has_its_place() -> None:
    assert sorted(ORDER) == sorted(path.parent.name for path in APP.glob("*/__init__.py"))
    assert [path.name for path in APP.glob("*.py")] == ["__init__.py", "__main__.py"]


def test_the_lists_of_packages_are_those_of_the_folders() -> None:
    listed = re.findall(r"^    (\w+)$", ast.get_docstring(modules()["spark_app"]) or "", re.MULTILINE)
    assert tuple(listed) == ORDER
    first = {name: (ast.get_docstring(modules()[f"spark_app.{name}"]) or "").split("\n")[0] for name in ORDER}
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in first.items())
    assert rows in (APP / "README.md").read_text()


def test_followers_do_not_know_each_other() -> None:
    """The registry is the list of them, and each is a file or a folder."""
    parts = [what.split(".") for what in imports(modules()["spark_app.followers.registry"])]
    names = {part[2] for part in parts if part[:2] == ["spark_app", "followers"]} - {"follower"}
    assert names >= {"gold", "events"}
    for name in names:
        others = [f"spark_app.followers.{other}" for other in names if other != name]
        known = users(APP / "followers", *others) - {"registry.py"}
        assert {file for file in known if file.split("/")[0].removesuffix(".py") == name} == set()


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package: str) -> None:
    behind = ORDER[ORDER.index(package) + 1 :]
    assert users(APP / package, *(f"spark_app.{name}" for name in behind)) == set()


def test_the_process_that_workers_are_forked_from_loads_what_they_need() -> None:
    """Each worker would load it by itself, for half a second of CPU."""
    needed = ["spark_app.units.worker.task", "numba"]
    needed += ["spark_app.sources.kafka.consumer", "spark_app.sources.kafka.input"]
    code = f"import sys, spark_app.units.spark.daemon; print([m for m in {needed} if m not in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


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
    "units/spark/cluster.py": "the secret of a cluster, and the options of Spark's own servers",
    "app/training.py": "the class archive",
    "app/explain_text.py": "the folder in which somebody wants the statements",
    "followers/gold/sql_tables/files.py": "the SQL files",
    "audit/check_bronze.py": "the acks of a producer",
    "audit/check_sink.py": "the log of a receiver",
    "protobuf/changes/check.py": "the .proto file that somebody wants to register",
    "sources/files/folder.py": "the folder of files that are ingested",
    "sources/files/memory.py": "/proc",
    "page/files.py": "the files of the page beside those of the lake",
    "app/children.py": "/proc",
    "app/temporary_folders.py": "temporary folders",
    "page/queries/child_process.py": "/proc",
    "protobuf/schemas/descriptors.py": "the temporary folder of protoc",
    "protobuf/schemas/well_known.py": "the installed packages",
    "settings/config.py": "the settings file and files of secrets",
    "units/spark/jvm.py": "/dev/null, and the lock file, which the JVM opens",
    "units/spark/launcher.py": "what spark-submit said, /proc, and the folder of Spark",
    "units/spark/options.py": "jars and temporary folders",
    "lake/delta/durability.py": "/proc",
}
# Objects whose methods have such names: `link` of the page, `open` of a sink.
OTHERS = {"ui", "target", "sink", "self._target"}
LOCAL_ONLY = {
    "app/training.py": "Spark's checkpoint",
    "units/driver/ingest.py": "Spark's checkpoint",
    "units/driver/streaming.py": "Spark's checkpoint",
    "units/spark/checkpoint.py": "Spark's checkpoint",
}


def test_files_of_a_lake_are_reached_through_the_storage() -> None:
    """All other code names them by keys. Only `path` makes a local path of a key."""
    reaching, local = set(), set()
    for name, tree in trees(APP):
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        methods = [f for f in calls if isinstance(f, ast.Attribute) and ast.unparse(f.value) not in OTHERS]
        of_lakes = [
            f for f in methods if ast.unparse(f.value).split(".")[-1] in ("lake", "_lake", "storage", "_storage")
        ]
        names = {f.attr for f in methods if f not in of_lakes} | {f.id for f in calls if isinstance(f, ast.Name)}
        reaching |= {name} if names & FILE_CALLS else set()
        local |= {name} if any(f.attr == "path" for f in of_lakes) else set()
    reaching -= {name for name in reaching if name.startswith("lake/files/")} | {"lake/lease.py"}
    reaching -= LOCAL_ONLY.keys() - NOT_OF_A_LAKE.keys()
    assert reaching == NOT_OF_A_LAKE.keys()
    assert local - {"lake/lake.py", "lake/files/local.py"} == LOCAL_ONLY.keys()


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
    assert sorted(set(elsewhere)) == ["lake/files/failpoints.py", "lake/files/reference_files.py"]


def test_only_state_files_and_committed_files_are_written() -> None:
    """Each write of a file that must last has its failpoints there, or says that it needs none."""
    writing = set()
    for name, tree in trees(APP):
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        methods = {f.attr for f in calls if isinstance(f, ast.Attribute) and ast.unparse(f.value).endswith("storage")}
        writing |= {name} if methods & {"replace", "put_if_absent", "put_file", "append"} else set()
    assert writing == {
        "followers/sinks/plan.py",
        "lake/spool.py",
        "lake/lease.py",
        "page/files.py",  # of a process beside the app
        "lake/files/state_files.py",
        "lake/delta/log.py",
        "lake/delta/manifest.py",
        "lake/delta/parquet.py",
    }


def test_nothing_is_too_large_to_be_read() -> None:
    """Lines of a file, lines of a function, parameters of a constructor."""
    found = []
    for name, tree in trees(APP):
        lines = (APP / name).read_text().count("\n")
        found += [f"{name}: {lines} lines"] if lines > 600 else []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                found += [f"{name}: {node.name} has {length} lines"] if length > 60 else []
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if node.name == "__init__" and len(given) > 11:  # self among them
                    found.append(f"{name}:{node.lineno}: a constructor of {len(given) - 1} parameters")
    assert found == []


def test_the_audit_shares_only_engines_with_what_it_audits() -> None:
    may_use = {"spark_app.lake.lake", "spark_app.sources.kafka.broker_access", "spark_app.sources.kafka.client"}
    # What evaluates expressions, and what judges messages; tests/unit/tables proves what they make of rows.
    engines = ("spark_app.tables.sql", "spark_app.tables.expectations.proto_rules")
    # Which statements there are, the engine that runs them, and how it logs.
    may_use |= {"spark_app.lake.sql_tables", "pyspark.errors", "pyspark.sql", "spark_app.units.spark.options"}
    may_use.add("pyspark.sql.pandas.types")
    packages = ("spark_app.audit", "spark_app.model", "spark_app.settings", "spark_app.lake.files", *engines)
    found = {
        what
        for _, tree in trees(APP / "audit")
        for what in imports(tree)
        if what.startswith(("spark_app.", "pyspark", "ptars"))
        if what not in may_use and what.rpartition(".")[0] not in may_use
        if not any(what.startswith(f"{package}.") for package in packages)
    }
    assert found == set()
    assert users(APP / "audit", "spark_app.model.log") == set()


def test_the_parts_do_not_know_each_other() -> None:
    assert users(APP, "producer", "scripts", "tests") == set()
    assert users(ROOT / "producer", "spark_app", "scripts", "tests") == set()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("spark_app.app.cli.entry", ["pyspark", "py4j", "deltalake", "confluent_kafka", "pyarrow"]),
        ("spark_app.page.server", ["pyspark", "py4j", "deltalake", "confluent_kafka", "pyarrow", "duckdb"]),
        ("spark_app.recovery.backtest", NOT_FOR_READERS),
        ("spark_app.page.lineage.lake_graph", NOT_FOR_READERS),
        (
            "spark_app.audit",
            [
                "pyspark",
                "py4j",
                "ptars",
                "spark_app.units.worker",
                "spark_app.units.driver",
                "spark_app.followers.gold",
                "spark_app.lake.delta",
                "spark_app.protobuf.schemas",
            ],
        ),
        (
            "spark_app.units.worker.task",
            ["pyspark", "pydantic", "confluent_kafka", "spark_app.settings", "spark_app.lake.lake"],
        ),
    ],
)
def test_importing_does_not_load(module: str, unwanted: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


JOBS = re.findall(r'case "(\w+)":', (APP / "page/job.py").read_text())


@pytest.mark.parametrize(
    ("load", "unwanted"),
    [
        (
            "from spark_app.page import server, views; [view.load() for view in views.VIEWS]",
            ["deltalake", "pyarrow", "duckdb"],
        ),
        (f"from spark_app.page import job; [job.load(name) for name in {JOBS}]", ["nicegui", "fastapi", "uvicorn"]),
        ("from spark_app.page import job", ["pyarrow", "duckdb", "google.protobuf"]),
    ],
)
def test_views_and_jobs_load_nothing_of_each_other(load: str, unwanted: list[str]) -> None:
    code = f"import sys; {load}; print([m for m in {unwanted} if m in sys.modules])"
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


def test_no_file_counts_the_folders_above_it() -> None:
    assert [path for path in APP.rglob("*.py") if "Path(__file__).parent" in path.read_text()] == []


def test_no_file_is_named_for_being_useful() -> None:
    banned = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert [path for path in APP.rglob("*.py") if path.stem in banned or path.stem.endswith("_v2")] == []


# Attributes of objects that a function has not made, and why they may be assigned there.
ASSIGNED = {
    "page: an element of NiceGUI, which shows what is assigned": {"rows", "columns", "value"},
    "a message of Protobuf": {"name"},
    "a module, a logger or a session that belongs to the process": {"tempdir", "excepthook", "disabled", "sql"},
    "pydantic's source of settings reads it": {"env_vars"},
    "a plain value that a run fills": {"rebuilt", "at", "after", "closed"},
    "a plain value that a walk fills": {"intact", "message", "text", "said"},
    "DuckDB reads this attribute of the object that it was given": {"now"},
}
PRIVATE_PARTS_OF_PYSPARK = "units/spark/jvm.py"


def parts_of(target: ast.expr) -> Iterator[ast.expr]:
    for part in target.elts if isinstance(target, ast.Tuple | ast.List) else ():
        yield from parts_of(part)
    yield target


def bound(function: ast.AST) -> set[str]:
    """The names that a function gives to what it makes or reads; its parameters are not among them."""
    return {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {"self", "cls"}


def assigned_elsewhere(tree: ast.AST) -> Iterator[ast.Attribute]:
    """`x.name = ...` of an `x` that the function has not made."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            own = bound(function)
            targets = (t for node in ast.walk(function) if isinstance(node, ast.Assign) for t in node.targets)
            for one in (part for target in targets for part in parts_of(target)):
                if isinstance(one, ast.Attribute) and not (isinstance(one.value, ast.Name) and one.value.id in own):
                    yield one


def test_an_object_gets_what_it_needs_when_it_is_made() -> None:
    allowed = set().union(*ASSIGNED.values())
    found = {
        f"{name}: {ast.unparse(one)}"
        for name, tree in trees(APP)
        if name != PRIVATE_PARTS_OF_PYSPARK
        for one in assigned_elsewhere(tree)
        if one.attr not in allowed
    }
    assert not found, "give it to the constructor"


def test_what_is_assigned_to_another_object_is_found() -> None:
    lines = ["def f(self, x, y):", "self.a = 1", "z = g()", "z.b = 2", "x.c = 3", "self.y.d, x.e = 4, 5"]
    code = "\n ".join([*lines, "with y as w:", " w.f = 6"])
    assert [one.attr for one in assigned_elsewhere(ast.parse(code))] == ["c", "d", "e"]
