"""What workers, and processes that answer one question, do not load."""

import json
import subprocess
import sys

ARRAY = """
import sys
import pyarrow as pa
from spark_app.units.worker import task
from spark_app.units.worker.block_pandas import block_pandas
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
    assert said("block_pandas(); block_pandas()") == [f"{rows} False", "pandas is not loaded in this process"]


ANSWER = """
import sys
import pyarrow as pa
from spark_app.page.queries.child_process import serve_requests
serve_requests(lambda question: {"rows": pa.array(question["rows"]).to_pylist(), "pandas": "pandas" in sys.modules})
"""


def test_a_process_that_answers_one_question_leaves_out_pandas() -> None:
    command = [sys.executable, "-c", ANSWER]
    made = subprocess.run(command, input='{"rows": [1, 2]}', capture_output=True, text=True, check=True)
    assert json.loads(made.stdout) == {"rows": [1, 2], "pandas": False}
