"""Small schemas that are dear to compile or to use: stopped in time and in memory, and nothing runs on."""

import os
import re
import resource
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spark_app.lake.lake import Lake
from spark_app.protobuf.columns.types import arrow_schema
from spark_app.protobuf.decode.google_parser import load_files
from spark_app.protobuf.schemas.descriptors import CompileUnavailable, compile_sources
from spark_app.protobuf.schemas.ledger import Ledger, message_schemas
from spark_app.protobuf.schemas.limits import SchemaInvalid, SchemaLimits
from spark_app.protobuf.schemas.registry import ROOT, Registry, Sources, Subjects
from spark_app.protobuf.schemas.resolver import SchemaResolver, limits_of
from spark_app.settings.connections import RegistrySettings
from spark_app.settings.models import Schemas
from tests.support.answers import Answers
from tests.support.bombs import BOMBS, text
from tests.support.protos import CAPS, PROTO3

MEMORY = 512 << 20
LOT = 1 << 20  # bytes: the kernel adds the pages of a thread to those of its process in lots
HARMLESS = {"enum", "enum aliases", "services", "option strings", "string literal", "imports"}  # they fit the caps


def peak() -> int:
    """The most memory this process has held since `forget_peak`, bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def children() -> str:
    """Process ids of this process' children, also of those that have ended unnoticed."""
    return " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).strip()


def child_peak() -> int:
    """The most memory that any child of this process has held, bytes. For a moment a child has that of its parent."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def cpu_s() -> float:
    """Of this process and all children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.mark.usefixtures("only_cpu_counts")
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_stopped(name: str) -> None:
    sources = BOMBS[name]()
    before, child_before, started, others = forget_peak(), child_peak(), cpu_s(), children()
    try:
        message_schemas(compile_sources(sources, CAPS if name in HARMLESS else replace(CAPS, max_compile_cpu_s=1)))
        outcome = "harmless"
    except SchemaInvalid:
        outcome = "refused"
    assert outcome == ("harmless" if name in HARMLESS else "refused")
    assert cpu_s() - started <= 10
    assert peak() - before <= MEMORY
    # Of all children so far: other tests have some too, and a child begins with the memory of its parent.
    assert child_peak() <= max(MEMORY, peak() + LOT) or child_peak() == child_before
    assert children() == others


def test_busy_machine_refuses_nothing() -> None:
    others = children()
    with pytest.raises(CompileUnavailable, match="wall-clock time"):
        compile_sources(BOMBS["reserved numbers"](), replace(CAPS, max_compile_cpu_s=0.1))
    assert children() == others


def test_bomb_is_compiled_once(answers: Answers, tmp_path: Path) -> None:
    answers.schema(7, BOMBS["exponential columns, never used"]().texts[ROOT])
    settings = Schemas()
    for _ in range(3):  # three starts of the app
        registry = Registry(RegistrySettings(url=answers.url), limits_of(settings))
        desk = SchemaResolver(Ledger(Lake(tmp_path)), registry, settings, Subjects(()))
        assert desk.resolve_new([7]) == []
        assert not desk.retry_waiting()
        assert desk.ledger.entries[7].outcome == "refused"
    assert answers.asked == ["/schemas/ids/7"]


def columns(count: int, name: str = "M") -> str:
    return f"message {name} {{" + "".join(f"int32 f{i} = {i + 1};" for i in range(count)) + "}"


def deep(levels: int) -> str:
    """A message with so many levels below it; the lowest has two fields."""
    inner = f"message L{levels} {{ int32 x = 1; int32 y = 2; }}"
    return "".join(f"message L{n} {{ L{n + 1} m = 1; }}" for n in range(levels)) + inner


@pytest.mark.parametrize(
    ("caps", "fits", "over"),
    [
        ({"max_columns": 50}, columns(50), columns(51)),
        ({"max_columns": 4}, "message M { map<string, int32> a = 1; map<string, int32> b = 2; }", columns(5)),
        ({"max_columns": 2}, deep(3), "message M { int32 a = 1; B b = 2; } message B { int32 a = 1; int32 b = 2; }"),
        ({"max_total_columns": 60}, columns(30, "A") + columns(30, "B"), columns(30, "A") + columns(31, "B")),
        (
            {"max_messages": 3},
            "message A { message B { message C {} } }",
            "message A { message B { message C {} } } message D {}",
        ),
    ],
)
def test_caps_on_messages(caps: dict[str, int], fits: str, over: str) -> None:
    limits = replace(CAPS, **caps)
    compile_sources(text(fits), limits)
    with pytest.raises(SchemaInvalid, match="cap"):
        compile_sources(text(over), limits)


def test_times_and_wrappers_are_one_column() -> None:
    names = ("timestamp", "duration", "wrappers")
    imports = "".join(f'import "google/protobuf/{name}.proto";' for name in names)
    fields = ("Timestamp a=1;", "Duration b=2;", "StringValue c=3;")
    body = imports + "message M { " + "".join(f"google.protobuf.{field}" for field in fields) + "}"
    compile_sources(text(body), replace(CAPS, max_columns=3))


@pytest.mark.parametrize(("levels", "leaves"), [(13, 2), (14, 2), (15, 1), (40, 1)])
def test_what_is_too_deep_is_one_column_of_json(levels: int, leaves: int) -> None:
    compile_sources(text(deep(levels)), replace(CAPS, max_columns=2))
    _, messages = load_files(compile_sources(text(deep(levels)), CAPS))
    kind = arrow_schema(messages[0]).field("m").type
    while hasattr(kind, "fields") and kind.num_fields == 1:
        kind = kind.field(0).type
    assert max(kind.num_fields, 1) == leaves


@pytest.mark.parametrize("letter", ["x", "é", "💥"])
def test_cap_on_text_is_in_bytes(answers: Answers, letter: str) -> None:
    def size(count: int) -> Sources:
        answers.schema(count, PROTO3 + "//" + letter * count)
        return Registry(RegistrySettings(url=answers.url), replace(CAPS, max_text_bytes=1000)).fetch(count)

    most = (1000 - len(PROTO3) - 2) // len(letter.encode())
    assert size(most).size <= 1000
    with pytest.raises(SchemaInvalid, match="bytes are over"):
        size(most + 1)


@pytest.mark.parametrize(("count", "asked"), [(4, 5), (5, 1)])
def test_cap_on_files(answers: Answers, count: int, asked: int) -> None:
    references = [answers.version(f"s{i}", 1, PROTO3) | {"name": f"{i}.proto"} for i in range(count)]
    answers.schema(1, PROTO3 + "message M {}", references=references)
    registry = Registry(RegistrySettings(url=answers.url), replace(CAPS, max_files=5))
    if count < 5:
        compile_sources(registry.fetch(1), CAPS)
    else:
        with pytest.raises(SchemaInvalid, match="6 files are over the cap of 5"):
            registry.fetch(1)
    assert len(answers.asked) == asked


@pytest.mark.parametrize(
    ("tight", "bomb", "reason"),
    [
        ({"max_compile_bytes": 200 << 20}, "enum aliases", "may have needed more than"),
        ({"max_text_bytes": 10_000}, "messages", "File too large"),
    ],
)
def test_caps_on_compiling(tight: dict[str, int], bomb: str, reason: str) -> None:
    with pytest.raises(SchemaInvalid, match=reason):
        compile_sources(BOMBS[bomb](), replace(CAPS, **tight))


@pytest.mark.usefixtures("only_cpu_counts")
def test_cap_on_cpu() -> None:
    with pytest.raises(SchemaInvalid, match="1 s of CPU"):
        compile_sources(BOMBS["reserved numbers"](), replace(CAPS, max_compile_cpu_s=1))


def test_machine_that_cannot_run_protoc_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # type: ignore[attr-defined]  # has no packages
    with pytest.raises(CompileUnavailable, match="could not run"):
        compile_sources(text("message M {}"), CAPS)


def test_every_cap_is_a_setting() -> None:
    assert limits_of(Schemas()) == SchemaLimits(1 << 20, 100, 2000, 5, 512 << 20, 1000, 20_000)
