"""The state around the tables, damaged under the real app: the campaign's scenarios, once each, from one seed."""

from __future__ import annotations

from random import Random

import pytest

from tests.chaos.lab import Lab
from tests.chaos.scenarios import Size, checkpoint, locks, offsets

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]


@pytest.mark.nightly
def test_a_checkpoint_that_is_not_the_lakes_is_refused_and_repaired(lab: Lab) -> None:
    outcome = checkpoint.swapped(lab, Size(1, 0), Random(1))
    assert outcome.faults == {}
    assert (outcome.done, outcome.figures["went_on"], outcome.figures["refused"]) == (4, 1, 3)


@pytest.mark.nightly
def test_lost_offsets_are_named_held_and_accepted_once(lab: Lab) -> None:
    outcome = offsets.run(lab, Size(1, 0), Random(3))
    assert outcome.faults == {}
    assert outcome.figures["offsets_lost"] > 0
    assert outcome.figures["noticed_while_running_after_s_at_most"] > 0


@pytest.mark.nightly
def test_the_lake_has_one_writer(lab: Lab) -> None:
    for scenario in (locks.relaunched, locks.second):
        assert scenario(lab, Size(1, 0), Random(5)).faults == {}
