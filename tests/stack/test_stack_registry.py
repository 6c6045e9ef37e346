"""A real registry: what it answers to what is asked of it beside the schemas themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from deltalake import DeltaTable

from scripts.local.registry import Registry as Server
from spark_app.model.errors import ExitCode
from spark_app.protobuf.schemas.registry import ROOT, Registry
from spark_app.settings.connections import RegistrySettings
from tests.chaos.stage import Stage, kill, wait_until
from tests.support.answers import serve
from tests.support.protos import CAPS, PROTO3

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]


def client(server: Server, subject: str = "") -> Registry:
    return Registry(RegistrySettings(url=server.url, subject=subject), CAPS)


def register(server: Server, subject: str, text: str, *references: SchemaReference) -> int:
    found: int = SchemaRegistryClient({"url": server.url}).register_schema(
        subject, Schema(text, "PROTOBUF", list(references))
    )
    return found


@pytest.mark.parametrize("context", ["", ":.sales:"])
def test_a_schema_is_found_in_the_context_of_its_subject(registry: Server, context: str) -> None:
    """This registry has one range of ids for all contexts: that a context's own ids differ is shown elsewhere."""
    name = "default" if not context else "sales"
    register(registry, f"{context}common-{name}", f"{PROTO3} package {name}; message Part {{ int64 x = 1; }}")
    text = f'{PROTO3} package {name}; import "common.proto"; message Order {{ Part part = 1; }}'
    subject = f"{context}orders-{name}"
    reference = SchemaReference("common.proto", f"{context}common-{name}", 1)
    schema_id = register(registry, subject, text, reference)
    found = client(registry, subject)
    assert set(found.fetch(schema_id).texts) == {ROOT, "common.proto"}
    assert found.subjects_of(schema_id) == {f"orders-{name}": 1}
    assert found.subject_versions(subject) == {schema_id: 1}


def test_an_id_that_nobody_registered_has_no_subjects(registry: Server) -> None:
    assert client(registry).subjects_of(2**31 - 1) == {}
    assert client(registry).subjects_of("89791762-2336-4186-9674-299b90a802e2") == {}


def test_a_registry_that_refuses_the_login_holds_the_app(new_stage: Callable[..., Stage]) -> None:
    with serve() as answers:
        stage = new_stage(REGISTRY__URL=answers.url)
        stage.produce(10)
        answers[f"/subjects/{stage.topic}-value/versions"] = (401, {"error_code": 401, "message": "who are you?"})
        assert stage.run() == ExitCode.CONFIGURATION
        assert "registry.password_file" in stage.lines()[-1]


@pytest.mark.nightly
def test_comments_of_the_demo_reach_its_tables(new_stage: Callable[..., Stage]) -> None:
    stage = new_stage()
    stage.produce(500, schema_version="1")
    assert stage.drain() == [ExitCode.DONE]
    stage.produce(500, schema_version="3")
    assert stage.drain()[-1] == ExitCode.DONE
    table = DeltaTable(str(stage.lake / "silver_uno_events"))
    found = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert (found["gamer_id"], found["col_custom_2"]) == (
        "Who played.",
        "Second detail of the event; NULL if there is none.",
    )
    assert table.metadata().description == "One thing that a gamer did in a game."
    assert None not in found.values()
    assert stage.verify() == {}


def take_and_rename(stage: Stage, server: Server, old: str, new: str) -> int:
    """Records of version 1 are in the lake, and then a version with a renamed field is registered and met at a start;
    returns its schema id."""
    subject = f"{stage.topic}-value"
    stage.produce(500, schema_version="1")
    assert stage.drain() == [ExitCode.DONE]
    client = SchemaRegistryClient({"url": server.url})
    text = client.get_latest_version(subject).schema.schema_str
    assert text is not None
    client.set_compatibility(subject, "NONE")
    schema_id = register(server, subject, text.replace(old, new))
    assert stage.drain() == [ExitCode.DONE]
    return schema_id


@pytest.mark.nightly
def test_a_renamed_field_is_reported_before_its_first_record(new_stage: Callable[..., Stage], registry: Server) -> None:
    stage = new_stage()
    subject = f"{stage.topic}-value"
    schema_id = take_and_rename(stage, registry, "device_id", "device")
    [line] = [line for line in stage.lines() if "a schema version changes its tables" in line]
    said = "field device_id was renamed to device: new rows fill the column device, and device_id stays NULL for them"
    assert f"schema={schema_id} subject={subject} version=2 before=1" in line
    assert f'said="{said}"' in line
    assert stage.status()["schema_warnings"] == {
        "count": 1,
        "newest": [f"v2 of {subject}: {said}"],
        "stopped": {},
    }
    listed = stage.command("schemas", "--diff")
    assert (listed.returncode, said in listed.stdout) == (ExitCode.DONE, True)
    assert stage.drain() == [ExitCode.DONE]
    assert sum("a schema version changes its tables" in line for line in stage.lines()) == 1


@pytest.mark.nightly
def test_a_person_decides_while_the_app_is_down_and_while_it_runs(
    new_stage: Callable[..., Stage], registry: Server
) -> None:
    stage = new_stage(SCHEMAS__CHANGES='{"rename": "pause", "added": "pause"}')
    renamed = take_and_rename(stage, registry, "gamer_id", "player_id")
    assert list(stage.status()["schema_warnings"]["stopped"]) == [str(renamed)]
    down = stage.command("accept-schema", str(renamed), "--as", "alias")
    assert (down.returncode, "alias" in down.stdout) == (ExitCode.DONE, True)
    app = stage.start()
    try:
        wait_until(lambda: stage.status()["state"] == "running", "the start")
        stage.produce(500, schema_version="2", seed="2", compatibility="NONE")  # adds a field
        wait_until(lambda: stage.status()["schema_warnings"]["stopped"], "the next schema to decide about")
        [added] = stage.status()["schema_warnings"]["stopped"]
        up = stage.command("accept-schema", added, "--as", "warn")
        assert up.returncode == ExitCode.DONE
        wait_until(lambda: not stage.status()["deferred"], "the rows that waited")
    finally:
        kill(app)
    assert stage.drain()[-1] == ExitCode.DONE
    rows = DeltaTable(str(stage.lake / "silver_uno_events")).to_pyarrow_table()
    assert {"gamer_id", "col_custom_1"} <= set(rows.column_names)
    assert "player_id" not in rows.column_names
    assert rows["gamer_id"].null_count == 0
    assert stage.verify() == {}
