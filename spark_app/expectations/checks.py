import functools
import json

from spark_app.expectations.engine import connection


@functools.cache
def columns_of(name, check):
    tree = json.loads(connection().execute("select json_serialize_sql(?)", [f"SELECT {check}"]).fetchall()[0][0])
    found = set()

    def walk(n):
        if isinstance(n, dict):
            if n.get("class") == "COLUMN_REF":
                found.add(n["column_names"][0])
            for v in n.values():
                walk(v)
        elif isinstance(n, list):
            for v in n:
                walk(v)

    walk(tree)
    return frozenset(found)
