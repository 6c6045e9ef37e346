"""What the measurements send: every kind and version compiles, reads its elders, and comes in the shares asked for."""

import random
from itertools import islice

import pytest

from scripts.benches import messages, topics
from scripts.benches.shape import Shape, game_names


@pytest.mark.parametrize(("kind", "fields"), [("flat", 4), ("rich", 40), ("wide", 500)])
def test_each_version_adds_two_fields_and_reads_its_elders(kind: str, fields: int) -> None:
    _, old = messages.compile_version(kind, 1)
    _, new = messages.compile_version(kind, 3)
    assert (len(old.DESCRIPTOR.fields), len(new.DESCRIPTOR.fields)) == (fields, fields + 4)
    event = messages.fill(old(), random.Random(1))
    read = new.FromString(event.SerializeToString())
    assert old.FromString(read.SerializeToString()) == event
    assert not read.HasField("col_custom_1")


@pytest.mark.parametrize("kind", messages.KINDS)
def test_every_field_is_filled_but_for_the_rest_of_a_oneof(kind: str) -> None:
    _, event = messages.compile_version(kind, 2)
    dice = random.Random(7)
    seen = {field.name for _ in range(50) for field, _ in messages.fill(event(), dice).ListFields()}
    assert seen == {field.name for field in event.DESCRIPTOR.fields}


def test_one_game_has_its_share() -> None:
    drawn = list(islice(topics._draw_games(random.Random(1), Shape(0, games=10, skew=0.9)), 10_000))
    assert 0.88 < drawn.count("game_0000") / len(drawn) < 0.92
    assert set(drawn) == set(game_names(10))


def test_a_topic_says_what_is_in_it() -> None:
    assert Shape(2_000_000).words() == "2,000,000 flat events, 7 games, 4 partitions"
    assert Shape(10, 50, "rich", 3, 0.01, 0.9).words() == (
        "10 rich events, 50 games, 4 partitions, 3 versions, 1% bad, one game has 90%"
    )
