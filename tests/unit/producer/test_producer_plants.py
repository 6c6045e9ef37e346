"""Shares of planted rule failures: how they are written, refused and drawn."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.__main__ import main
from producer.plants import PLANTS, draw_plant, parse_plants

MOST = "0.2"  # five kinds may have as much each
SHARES = st.dictionaries(st.sampled_from(sorted(PLANTS)), st.decimals(0, MOST, places=4).map(float))


@given(SHARES, st.sampled_from([",", ", ", " , ", ",,"]))
def test_shares_are_read_as_they_are_written(shares: dict[str, float], between: str) -> None:
    written = between.join(f"{kind}={share:f}" for kind, share in shares.items())
    assert parse_plants(written) == pytest.approx(shares)
    assert list(parse_plants(written)) == list(shares)


@given(st.text())
def test_any_other_text_is_refused_or_has_known_kinds(text: str) -> None:
    try:
        shares = parse_plants(text)
    except ValueError:
        return
    assert set(shares) <= set(PLANTS)
    assert 0 <= sum(shares.values()) <= 1.000001


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no_player", "cannot read 'no_player'"),
        ("no_player=1%", "cannot read 'no_player=1%'"),
        ("no_player=-0.1", "cannot read"),
        ("no_player=nan", "cannot read"),
        ("no_payer=0.1", "unknown kind 'no_payer', known are no_player, "),
        ("no_player=0.1,no_player=0.2", "names no_player twice"),
        ("no_player=0.6,no_device=0.6", "shares of 1.2 in total"),
    ],
)
def test_a_wrong_share_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_plants(text)


def test_shares_of_all_records_in_total_are_possible() -> None:
    shares = parse_plants("no_player=0.7,no_device=0.2,test_device=0.1")
    drawn = Counter(draw_plant(Random(number), shares) for number in range(2_000))
    assert drawn[None] <= 1
    assert drawn["no_player"] > drawn["no_device"] > drawn["test_device"] > 0


@given(SHARES, st.integers(0, 1 << 32))
def test_the_drawn_kinds_have_their_shares(shares: dict[str, float], seed: int) -> None:
    random, count = Random(seed), 4_000
    drawn = Counter(draw_plant(random, shares) for _ in range(count))
    assert set(drawn) <= {None, *(kind for kind, share in shares.items() if share)}
    for kind, share in shares.items():
        assert drawn[kind] / count == pytest.approx(share, abs=0.06)  # eight standard deviations


def test_the_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults"]) == 0
    listed = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert {kind for kind, hop in listed.items() if hop == "rule"} == set(PLANTS)
