"""What the bench of lakes in a bucket makes of its measurements."""

from collections import Counter

import obstore
import pytest

from scripts.benches.buckets import BY_THE_CLOCK, by_verb
from scripts.benches.counting import Counting
from spark_app.lake.files.object_clients import open_store
from tests.support.stores import Moto, address_in


def test_deletes_of_one_and_of_many_are_one_kind_and_no_verb_is_left_out() -> None:
    counted = [Counter(PUT=4, DELETE=1, DELETES=2, COPY=1), Counter(PUT=3, GET=2)]
    assert by_verb(counted) == {
        "PUT": [4, 3],
        "HEAD": [0, 0],
        "LIST": [0, 0],
        "GET": [0, 2],
        "DELETE": [3, 0],
        "COPY": [1, 0],
    }


@pytest.mark.timeout(60)
def test_requests_are_counted_in_another_process(moto: Moto) -> None:
    with Counting(moto.url) as counting:
        store = open_store(address_in(moto, counting.url))
        for key in ("a", "b", "synced.json"):
            obstore.put(store, key, b"x", use_multipart=False)
        obstore.head(store, "a")
        assert counting.take(BY_THE_CLOCK) == Counter(PUT=2, HEAD=1)
        assert counting.take() == Counter()
