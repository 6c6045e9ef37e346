"""How many examples a property is tried with: few where everyone waits, many at night (tests/nightly.py)."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("PROTOLAKE_TEST_EXAMPLES", "25"))


def examples(share: float = 1.0, least: int = 10) -> settings:
    """Settings for a property; `share` of the examples where one of them is slow, but at least so many. The same ones
    in every run, unless there are many."""
    return settings(
        max_examples=max(least, int(EXAMPLES * share)),
        deadline=None,
        derandomize=EXAMPLES <= 1000,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )
