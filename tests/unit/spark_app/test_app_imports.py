"""What a worker process does not load."""

import subprocess
import sys

ARRAY = """
import sys
import pyarrow as pa
from spark_app.worker import task
from spark_app.worker.block_pandas import block_pandas
{first}
print(pa.array([1, 2]).to_pylist(), pa.array(["a", None]).to_pylist(), "pandas" in sys.modules)
try:
    import pandas
except ModuleNotFoundError as error:
    print(error)
"""


def said(first: str) -> list[str]:
    made = subprocess.run([sys.executable, "-c", ARRAY.format(first=first)], capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


def test_a_worker_leaves_out_pandas() -> None:
    rows = "[1, 2] ['a', None]"
    assert said("") == [f"{rows} True"]  # else nobody has to keep it out any more
    assert said("block_pandas(); block_pandas()") == [f"{rows} False", "pandas is left out of workers"]
