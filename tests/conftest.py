"""Fixtures that several folders share; a fixture for one folder lies there."""

pytest_plugins = ["tests.support.servers"]
