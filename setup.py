"""The packages of the wheel, which pyproject.toml cannot say: the public one lies within the app, under a name of its
own."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["spark_app*"]), "protolake.sinks"],
    package_dir={"protolake": "spark_app/public"},
)
