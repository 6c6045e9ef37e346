"""Fixtures that several folders share; a fixture for one folder lies there."""

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")  # what is asserted there names its values, too

from tests.support.examples import EXAMPLES  # noqa: E402

pytest_plugins = ["tests.support.servers", "tests.support.stores"]

# A test has the time limit of pytest. One of 0.2 s for each example would fail on a busy machine.
hypothesis.settings.register_profile("patient", max_examples=EXAMPLES, deadline=None)
hypothesis.settings.load_profile("patient")
