"""A kind of sink in its own package: rows land in a SQLite file, as JSON beside the columns that it is searched by.

[project.entry-points."protolake.sinks"]
sqlite = "sqlite_sink:SqliteSink"

[sinks.local]
kind = "sqlite"
options = { path = "/data/rows.db" }
"""

import sqlite3

from protolake.sinks import DELETE, OPERATION, Outcome


class SqliteSink:
    can_replace = True

    def open(self, options):
        self._file = sqlite3.connect(options["path"], check_same_thread=False)
        self._file.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY)")
        self._file.execute("CREATE TABLE IF NOT EXISTS rows (source TEXT, name TEXT, row TEXT)")
        self._file.execute("CREATE INDEX IF NOT EXISTS by_name ON rows (source, name)")

    def send(self, calls):
        return [self._send(call) for call in calls]

    def close(self):
        self._file.close()

    def _send(self, call):
        with self._file:  # one transaction: the rows of a call and its key are there together
            known = self._file.execute("INSERT OR IGNORE INTO calls VALUES (?)", [call.key]).rowcount == 0
            if not known:
                self._write(call)
        return Outcome(call.key, "accepted")

    def _write(self, call):
        if call.replaces:
            self._file.execute("DELETE FROM rows WHERE source = ?", [call.table])
        for row, line in zip(call.objects, call.lines, strict=True):
            name = repr([row[column] for column in call.names])
            if call.names:
                self._file.execute("DELETE FROM rows WHERE source = ? AND name = ?", [call.table, name])
            if row.get(OPERATION) != DELETE:
                self._file.execute("INSERT INTO rows VALUES (?, ?, ?)", [call.table, name, line.decode()])
