"""What BI tools are made of, at the PostgreSQL that serves a lake: psql, SQLAlchemy, pgjdbc, psqlodbc, node's pg.

Each says which tables and columns it finds, their types and comments, and what a query gives.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.stack.test_stack_serve import BOARD, GOLD, Served, user
from tests.support.postgres import HOST, Database, PostgresServer

pytestmark = [pytest.mark.stack, pytest.mark.nightly, pytest.mark.timeout(300)]
QUERY = f"SELECT gamer_id, n FROM {GOLD} ORDER BY n DESC"
ROWS = [["b", 2], ["a", 1]]
COLUMNS = ["gamer_id", "n", "top"]
COMMENT = "How many"
SQLALCHEMY = """
import json, sys
from sqlalchemy import create_engine, inspect, text
engine = create_engine(sys.argv[1])
found, (schema, table) = inspect(engine), sys.argv[2:4]
columns = found.get_columns(table, schema)
rows = [list(row) for row in engine.connect().execute(text(sys.argv[4]))]
print(json.dumps({"tables": found.get_table_names(schema), "columns": [one["name"] for one in columns],
    "types": [str(one["type"]) for one in columns], "comments": [one["comment"] for one in columns],
    "keys": [one["column_names"] for one in found.get_indexes(table, schema) if one["unique"]], "rows": rows}))
"""
JDBC = """
import java.sql.*;
import java.util.*;
public class Look {
  static List<String> all(ResultSet rows, String... names) throws SQLException {
    List<String> found = new ArrayList<>();
    while (rows.next()) for (String name : names) found.add('"' + String.valueOf(rows.getObject(name)) + '"');
    return found;
  }
  public static void main(String[] a) throws SQLException {
    try (Connection c = DriverManager.getConnection(a[0], a[1], a[2])) {
      DatabaseMetaData data = c.getMetaData();
      System.out.println("{\\"tables\\": " + all(data.getTables(null, a[3], null, new String[] {"TABLE"}), "TABLE_NAME")
        + ", \\"columns\\": " + all(data.getColumns(null, a[3], a[4], null), "COLUMN_NAME")
        + ", \\"types\\": " + all(data.getColumns(null, a[3], a[4], null), "TYPE_NAME")
        + ", \\"comments\\": " + all(data.getColumns(null, a[3], a[4], null), "REMARKS")
        + ", \\"keys\\": " + all(data.getIndexInfo(null, a[3], a[4], true, false), "COLUMN_NAME")
        + ", \\"rows\\": " + all(c.createStatement().executeQuery(a[5]), "gamer_id", "n") + "}");
    }
  }
}
"""
NODE = """
const {Client} = require(process.argv[2] + "/node_modules/pg");
(async () => {
  const client = new Client({connectionString: process.argv[3]});
  await client.connect();
  const columns = await client.query("SELECT column_name, data_type FROM information_schema.columns "
    + "WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position", [process.argv[4], process.argv[5]]);
  const rows = await client.query({text: process.argv[6], rowMode: "array"});
  console.log(JSON.stringify({columns: columns.rows.map(one => one.column_name),
    types: columns.rows.map(one => one.data_type), rows: rows.rows}));
  await client.end();
})();
"""


@pytest.fixture(scope="module")
def served(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With the users ann, who sees all of gold, and ben, who may not see one field."""
    folder = tmp_path_factory.mktemp("clients")
    users = user(folder, "ann", "gold_*") | user(folder, "ben", "gold_*", hide=("ssn",))
    lake = Served(folder, Database(server, "games", folder), users=users)
    lake.write(GOLD, {"gamer_id": "a", "n": 1, "top": "1"}, {"gamer_id": "b", "n": 2, "top": "2"})
    DeltaTable(str(lake.lake.lake.path(GOLD))).alter.set_column_metadata("n", {"comment": COMMENT})
    lake.write(BOARD, {"gamer_id": "a"})
    with lake.running():
        lake.until(lambda: len(lake.rows(GOLD)) == 2 and lake.rows(BOARD) and not lake.reason())
        yield lake


def run(*command: str, folder: Path | None = None, stdin: str = "", **variables: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    given: dict[str, Any] = {"env": os.environ | variables, "input": stdin, "cwd": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def address(served: Served, name: str = "ann", scheme: str = "postgresql") -> str:
    return f"{scheme}://{name}:pass%20of%20{name}@{HOST}:{served.database.server.port}/postgres"


def test_psql(served: Served) -> None:
    psql = ["psql", "-X", "-A", "-F", "|", address(served)]
    assert f"games|{GOLD}|table|postgres" in run(*psql, "-c", r"\dt games.*")
    described = run(*psql, "-c", rf"\d+ games.{GOLD}")
    assert f"n|bigint||||plain|||{COMMENT}" in described
    assert "UNIQUE, btree (gamer_id) NULLS NOT DISTINCT" in described
    assert run(*psql, "-t", "-c", QUERY) == "b|2\na|1\n"


def test_sqlalchemy(served: Served) -> None:
    python = "/usr/bin/python3"
    if not Path("/usr/lib/python3/dist-packages/sqlalchemy").exists():
        pytest.skip("no SQLAlchemy here: apt-get install python3-sqlalchemy python3-psycopg2")
    found = json.loads(run(python, "-c", SQLALCHEMY, address(served), "games", GOLD, QUERY))
    assert {GOLD, BOARD} <= set(found["tables"])
    assert (found["columns"], found["rows"]) == (COLUMNS, ROWS)
    assert found["types"] == ["TEXT", "BIGINT", "TEXT"]
    assert found["comments"] == [None, COMMENT, None]
    assert found["keys"] == [["gamer_id"]]


def test_pgjdbc(served: Served, tmp_path: Path) -> None:
    jar = Path("/usr/share/java/postgresql.jar")
    if not jar.exists() or shutil.which("javac") is None:
        pytest.skip("no pgjdbc here: apt-get install libpostgresql-jdbc-java, and a JDK")
    (tmp_path / "Look.java").write_text(JDBC)
    url = f"jdbc:postgresql://{HOST}:{served.database.server.port}/postgres?currentSchema=games"
    java = ["java", "-cp", str(jar), "Look.java", url, "ann", "pass of ann", "games", GOLD, QUERY]
    found = json.loads(run(*java, folder=tmp_path))
    assert {GOLD, BOARD} <= set(found["tables"])
    assert (found["columns"], found["types"]) == (COLUMNS, ["text", "int8", "text"])
    assert (found["comments"], found["keys"]) == (["null", COMMENT, "null"], ["gamer_id"])
    assert found["rows"] == ["b", "2", "a", "1"]


def test_psqlodbc(served: Served) -> None:
    drivers: Sequence[Path] = sorted(Path("/usr/lib").glob("*/odbc/psqlodbcw.so"))
    if not drivers:
        pytest.skip("no psqlodbc here: apt-get install odbc-postgresql unixodbc")
    values = {"DRIVER": drivers[0], "Servername": HOST, "Port": served.database.server.port, "Database": "postgres"}
    values |= {"Username": "ann", "Password": "pass of ann"}
    isql = ["isql", "-k", "-b", "-d|", ";".join(f"{name}={value}" for name, value in values.items())]
    assert run(*isql, stdin=f"{QUERY}\n").split() == ["b|2", "a|1"]
    columns = run(*isql, stdin=f"help {GOLD}\n").splitlines()
    assert [line.split("|")[3:6:2] for line in columns] == [["gamer_id", "text"], ["n", "int8"], ["top", "text"]]


def test_pg_of_node(served: Served, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("no npm here")
    run("npm", "install", "--silent", "--prefix", str(tmp_path), "pg@8.13.1")
    found = json.loads(run("node", "-e", NODE, "", str(tmp_path), address(served), "games", GOLD, QUERY))
    assert (found["columns"], found["types"]) == (COLUMNS, ["text", "bigint", "text"])
    assert found["rows"] == [[name, str(count)] for name, count in ROWS]  # it has no numbers of 64 bits


def test_who_may_not_see_a_column_is_refused_by_name(served: Served) -> None:
    psql = ["psql", "-X", "-A", "-t", address(served, "ben")]
    assert run(*psql, "-c", QUERY) == "b|2\na|1\n"
    listed = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{GOLD}' ORDER BY 1"
    assert run(*psql, "-c", listed).split() == ["gamer_id", "n"]
    for statement in (f"SELECT top FROM {GOLD}", f"TABLE {GOLD}", f"TABLE {BOARD}", f"SELECT count(*) FROM {BOARD}"):
        done = subprocess.run([*psql, "-c", statement], capture_output=True, text=True, check=False)
        assert "permission denied" in done.stderr, statement
