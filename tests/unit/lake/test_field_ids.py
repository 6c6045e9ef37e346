"""Field ids in Parquet files: each column of a lake has one, in every file and for ever."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_app.lake.delta import parquet as files
from spark_app.lake.delta import rewrite
from spark_app.lake.delta.parquet import Dictionaries
from spark_app.lake.delta.table_handles import ColumnIds
from spark_app.lake.files.local import LocalStorage
from spark_app.lake.lake import Lake
from spark_app.model.columns import FieldIds, paths_of
from spark_app.units.driver.unit import UnitOptions
from tests.support.frames import batch_of, frame
from tests.support.lakes import TOPIC, TOPIC_ID, SmallLake, Taken
from tests.support.projections import GROWN, MASKED, UNO, event, faults, lake_of
from tests.support.protos import PROTO3, compile_text, message_class

NESTED = {"columns": {"place": "{'city': home.city, 'all': [home.street], 'by': MAP {'a': large}}"}}


def found(path: Path) -> dict[str, int | None]:
    """Path -> field id of a file, by what Arrow reads from its footer."""
    return dict(_found(pq.ParquetFile(path).schema_arrow, ""))


def _found(fields: Any, above: str) -> Iterator[tuple[str, int | None]]:
    for field in fields:
        path, kind = above + field.name, field.type
        written = (field.metadata or {}).get(b"PARQUET:field_id")
        yield path, None if written is None else int(written)
        if pa.types.is_struct(kind):
            yield from _found(kind, f"{path}.")
        elif pa.types.is_map(kind):
            yield from _found([kind.key_field, kind.item_field], f"{path}.")
        elif pa.types.is_list(kind):
            yield from _found([kind.value_field.with_name("element")], f"{path}.")


def ids_of(root: Path) -> dict[str, int]:
    """Path -> field id of all files of a lake, which agree; each column has one, and no two share one."""
    ids: dict[str, int] = {}
    data = [path for path in sorted(root.glob("*/*.parquet")) if not path.parent.name.startswith("gold_")]
    assert data
    for path in data:
        own = found(path)
        assert None not in own.values(), (path, own)
        assert len(set(own.values())) == len(own)
        ids |= {name: number for name, number in own.items() if number is not None and ids.get(name, number) == number}
        assert own.items() <= ids.items(), path
    assert len(set(ids.values())) == len(ids)
    return ids


def stored(root: Path) -> dict[str, int]:
    kept: dict[str, int] = json.loads((root / Lake.field_ids).read_text())
    return kept


def test_every_file_of_a_lake_has_the_same_ids(tmp_path: Path) -> None:
    """Rows of two versions and two games, projections, refused records, a merge of files, and a restart."""
    root = tmp_path / "lake"
    home = {"city": "x", "street": "y"}
    first = lake_of(root, {}, lake={"compact_files": 2})
    first.take(batch_of([event("uno", "a", home=home), event("poker", "b"), b"\x02refused"]))
    before = ids_of(root)
    masked = {**MASKED, "columns": MASKED["columns"] | NESTED["columns"]}
    later = lake_of(root, masked, lake={"compact_files": 2})
    later.ends, later.kafka = first.ends, first.kafka
    for number in range(8):
        sent = [event("uno", "a", GROWN, home=home, large=2**64 - 1), event("poker", "b"), b"\x02refused"]
        later.take(batch_of(sent, first=3 + 3 * number))
    assert any(path.name.startswith("merged-") for path in (root / UNO).glob("*.parquet"))
    after = ids_of(root)
    assert before.items() <= after.items() <= stored(root).items()
    nested = ("place", "place.city", "place.all", "place.all.element", "place.by", "place.by.key", "place.by.value")
    assert {"home.zip", "device", "_definition", *nested} <= after.keys()
    assert sorted(stored(root).values()) == list(range(1, len(stored(root)) + 1))
    assert "field.id" not in DeltaTable(str(root / UNO)).schema().to_json()
    assert faults(later) == {}


def test_a_renamed_field_is_another_column_with_another_id(tmp_path: Path) -> None:
    one, other = (
        compile_text(PROTO3 + f"message E {{ string game_name = 1; {field} = 2; }}", schema_id=number)
        for number, field in enumerate(("int64 score", "int64 points"), 1)
    )
    lake = SmallLake(tmp_path, one, other)
    for number, schema in enumerate((one, other)):
        payload = message_class(schema, "E")(game_name="uno").SerializeToString()
        lake.take(batch_of([frame(schema.key, payload)], first=number))
    ids = ids_of(tmp_path)
    assert ids["score"] != ids["points"]


def test_an_id_is_durable_before_a_file_has_it(tmp_path: Path) -> None:
    """A crash before the commit leaves files that no table names, and the next start goes on with their ids."""
    sent = Taken([batch_of([event("uno", "a", home={"city": "x"})])])
    lake = lake_of(tmp_path / "lake", NESTED)
    lake.units.run(sent, 1, UnitOptions({TOPIC: TOPIC_ID}, bump_in_place=True))  # type: ignore[arg-type]
    left = ids_of(tmp_path / "lake")
    assert left.items() <= stored(tmp_path / "lake").items()
    again = lake_of(tmp_path / "lake", NESTED)
    again.take(batch_of([event("uno", "a", GROWN, home={"zip": "1"})]))
    assert left.items() <= ids_of(tmp_path / "lake").items()


def test_two_objects_never_give_one_id_twice(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.prepare()
    one, other = ColumnIds(lake), ColumnIds(lake)
    one.assign(["a"])
    other.assign(["b"])
    one.assign(["c"])
    assert stored(tmp_path) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("again", [False, True])
def test_rows_of_a_file_bring_no_ids_into_the_schema_of_a_table(tmp_path: Path, again: bool) -> None:
    """A rebuild copies rows from one file into another."""
    rows = pa.table({"x": [1], "s": [{"y": ["z"]}]})
    ids = FieldIds({path: number for number, path in enumerate(paths_of(rows.schema), 1)})
    plain = files.write_file(LocalStorage(tmp_path), ".", "a.parquet", rows, "zstd", ids=ids)
    read = pq.ParquetFile(tmp_path / "a.parquet").read()
    assert read.schema.field("x").metadata == {b"PARQUET:field_id": b"1"}
    copied = files.write_file(LocalStorage(tmp_path), ".", "b.parquet", read, "zstd", **({"ids": ids} if again else {}))
    assert copied.schema == plain.schema
    assert "field.id" not in copied.schema
    wanted = {"x": 1, "s": 2, "s.y": 3, "s.y.element": 4}
    assert found(tmp_path / "b.parquet") == (wanted if again else dict.fromkeys(wanted))


def test_files_of_a_trial_run_get_no_ids(tmp_path: Path) -> None:
    """Such as the scratch files of a rebuild, of which no table has any."""
    lake = lake_of(tmp_path / "lake", NESTED)
    sent = Taken([batch_of([event("uno", "a")])])
    lake.units.run(
        sent, 1, UnitOptions({TOPIC: TOPIC_ID}, storage=LocalStorage(tmp_path / "scratch"), bump_in_place=True)
    )  # type: ignore[arg-type]
    [path] = (tmp_path / "scratch" / UNO).glob("*.parquet")
    assert set(found(path).values()) == {None}
    assert not (tmp_path / "lake" / Lake.field_ids).exists()


@pytest.mark.parametrize("number", range(4))
def test_files_with_and_without_ids_are_merged(tmp_path: Path, number: int) -> None:
    """Those of an earlier release have none."""
    storage = LocalStorage(tmp_path)
    rows = pa.table({"x": [1], "s": [{"y": ["z"]}], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))})
    ids = FieldIds({path: number for number, path in enumerate(paths_of(rows.schema), 1)})
    for name, own in (("a", number & 1), ("b", number & 2)):
        files.write_file(storage, ".", name, rows, "zstd", **({"ids": ids} if own else {}))
    merged = rewrite.merge(storage, ".", ["a", "b"], rows.schema, "zstd", ids)
    assert None not in found(tmp_path / merged.path).values()
    assert pq.read_table(tmp_path / merged.path).to_pylist() == rows.to_pylist() * 2


def test_new_ids_leave_what_is_known_of_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of dictionaries, which are tried on rows, are kept when a worker receives other ids."""
    asked: list[str] = []
    tried = Dictionaries._ask
    monkeypatch.setattr(Dictionaries, "_ask", lambda self, *given: asked.append("") or tried(self, *given))
    rows = pa.table({"of_this_test": [1, 2]})
    for number in (7, 7, 8):
        ids = pickle.loads(pickle.dumps(FieldIds({"of_this_test": number})))
        files.write_file(LocalStorage(tmp_path), ".", "a.parquet", rows, "zstd", ids=ids)
        assert found(tmp_path / "a.parquet") == {"of_this_test": number}
    assert len(asked) == 1
