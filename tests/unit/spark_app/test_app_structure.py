"""What may import what: the rules that keep executors light, the command line fast and texts from outside harmless."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
APP = ROOT / "spark_app"
MAY_USE_SPARK = (
    {"session.py", "pipeline.py", "process/daemon.py", "shell.py", "warm.py", "kafka/source.py"}
    | {"gold/compute.py", "gold/shares.py"}
    | {f"driver/{name}.py" for name in ("ingest", "deferred", "unit", "reader", "shares", "attempts", "streaming")}
    | {f"recovery/{name}.py" for name in ("replay", "candidates", "rebuild", "compare", "service", "alone")}
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


def test_workers_know_neither_spark_nor_settings_nor_the_driver() -> None:
    ours = ("config", "lake", "store", "driver", "gold")
    assert users(APP / "worker", "pyspark", *(f"spark_app.{part}" for part in ours)) == set()


@pytest.mark.parametrize(
    ("layer", "above"),
    [
        ("store", ("kafka", "process", "driver", "gold", "recovery")),
        ("kafka", ("store", "process", "driver", "gold", "recovery")),
        ("process", ("store", "kafka", "driver", "gold", "recovery")),
        ("driver", ("gold", "recovery", "pipeline")),
        ("gold", ("kafka", "process", "recovery", "pipeline")),
    ],
)
def test_each_layer_knows_only_what_is_below(layer: str, above: tuple[str, ...]) -> None:
    loads_for_workers = {"daemon.py"} if layer == "process" else set()
    assert users(APP / layer, *(f"spark_app.{part}" for part in above)) <= loads_for_workers


def test_the_audit_shares_no_code_with_what_it_audits() -> None:
    ours = (
        "worker",
        "driver",
        "gold",
        "store",
        "process",
        "recovery",
        "schemas",
        "session",
        "pipeline",
        "ops",
        "kafka.consumer",
        "kafka.topics",
        "kafka.source",
        "kafka.transactions",
    )
    assert users(APP / "audit", "pyspark", "ptars", *(f"spark_app.{part}" for part in ours)) == set()


def test_the_parts_do_not_know_each_other() -> None:
    assert users(APP, "producer", "scripts", "tests") == set()
    assert users(ROOT / "producer", "spark_app", "scripts", "tests") == set()


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("spark_app.cli.entry", ["pyspark", "py4j", "deltalake", "confluent_kafka"]),
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
        ("spark_app.worker.one_pass", ["pyspark", "pydantic", "confluent_kafka", "spark_app.config", "spark_app.lake"]),
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
        found += [f"{name}: imports importlib" for what in imports(tree) if what.split(".")[0] == "importlib"]
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
