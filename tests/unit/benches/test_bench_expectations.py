"""What is said of the cost of rules: ratios of sides that took turns, over records that met all rules."""

import time
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from scripts.benches.expectations import FAILING, SIDES, THREE, WITHOUT, Case, figures, rules_of
from scripts.benches.shape import Shape
from scripts.benches.targets import RULES, RULES_BY_TABLES
from scripts.benches.tasks import Source, Task
from scripts.benches.topics import Maker
from scripts.local.errors import LocalError
from spark_app.model.record_schemas import SOURCE_SCHEMA
from spark_app.settings.connections import KafkaSettings
from spark_app.sources.kafka.input import Share

HEAD = b"\0\0\0\0\1\0"
NOWHERE = Share(KafkaSettings(brokers="127.0.0.1:9", topic="t"), (), 1, 1, 1, 1)


def _case(shape: Shape, folder: Path) -> Case:
    source = Source(shape, 1, NOWHERE)
    return Case(source, Task.of(source, folder))


def _records(shape: Shape) -> list[pa.RecordBatch]:
    now = time.time_ns() // 1_000_000
    made = islice(Maker(shape, [HEAD]).records(), shape.records)
    rows = [
        {"key": key, "value": value, "topic": "t", "partition": 0, "offset": offset, "timestamp_type": 0}
        for offset, (key, value, _) in enumerate(made)
    ]
    moments = pa.array([now] * len(rows)).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    table = pa.Table.from_pylist(rows, SOURCE_SCHEMA)
    place = SOURCE_SCHEMA.get_field_index("timestamp")
    batches: list[pa.RecordBatch] = table.set_column(place, "timestamp", moments).cast(SOURCE_SCHEMA).to_batches()
    return batches


@pytest.mark.parametrize("message", RULES)
def test_each_side_places_all_records_and_only_one_has_failures(message: str, tmp_path: Path) -> None:
    shape = Shape(4000, message=message)
    case, batches = _case(shape, tmp_path), _records(shape)
    for side in SIDES:
        assert case.place(side, iter(batches)) == shape.records
    assert not list(tmp_path.iterdir())
    with pytest.raises(LocalError, match="three rules: 12,000 checks passed and 0 failed of 4,001 records"):
        _case(Shape(4001, message=message), tmp_path).place(THREE, iter(batches))


def test_one_record_in_a_thousand_fails(tmp_path: Path) -> None:
    shape = Shape(20_000)
    [known_player, *_] = rules_of(FAILING, shape.message)
    players = [key for key, _, _ in islice(Maker(shape, [HEAD]).records(), shape.records)]
    failing = sum(key < b"gamer-000100" for key in players)
    assert known_player.check == "gamer_id >= 'gamer-000100'"
    assert 10 <= failing <= 30
    case = _case(shape, tmp_path)
    assert case.place(FAILING, iter(_records(shape))) == shape.records


def test_figures_are_ratios_of_rounds_with_the_targets() -> None:
    def case(shape: Shape, *rounds: tuple[float, float, float]) -> Case:
        source = Source(shape, 1, NOWHERE)
        cpu = {side: [one[n] for one in rounds] for n, side in enumerate(SIDES)}
        return Case(source, Task.of(source, Path()), cpu)

    cases = [
        case(Shape(10), (2.0, 2.2, 2.4), (3.0, 3.0, 3.0), (1.0, 1.2, 1.5)),
        case(Shape(2, message="rich"), (10.0, 11.0, 12.0), (20.0, 20.0, 20.0), (30.0, 30.0, 45.0)),
        case(Shape(10, games=200), (5.0, 6.0, 6.0), (5.0, 5.0, 6.0), (5.0, 7.0, 6.0)),
    ]
    found = {figure.what: figure for figure in figures(cases)}
    flat, rich, many = (found[f"CPU of the whole pass, {THREE} / {WITHOUT}, {one.name}"] for one in cases)
    assert (flat.value, flat.spread, flat.target) == (pytest.approx(1.1), (1.0, 1.2), RULES["flat"])
    assert (rich.value, rich.spread, rich.target) == (1.0, (1.0, 1.1), RULES["rich"])
    assert (many.value, many.spread, many.target) == (1.2, (1.0, 1.4), None)
    failing = found[f"CPU of the whole pass, {FAILING} / {WITHOUT}, flat, 7 tables"]
    assert (failing.value, failing.spread, failing.target) == (1.2, (1.0, 1.5), None)
    added = found[RULES_BY_TABLES.what]
    assert added.value == pytest.approx(0.1)
    assert added.spread == (pytest.approx(0.0), pytest.approx(0.2))
    assert added.target == RULES_BY_TABLES
    used = found[f"us of CPU a record, flat, 7 tables: {WITHOUT}"]
    assert (used.value, used.spread) == (2.0, (1.0, 3.0))


def test_names_of_figures_are_those_of_the_list() -> None:
    whats = {f"CPU of the whole pass, {THREE} / {WITHOUT}, {message}, 7 tables" for message in RULES}
    assert {target.what for target in RULES.values()} == whats
