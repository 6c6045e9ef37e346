"""The rules of a table's rows in a backtest: those of the settings, and those in the .proto of each row's schema."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_app.model.definitions import MAX_RULES, Rule
from spark_app.recovery.backtest.history import History
from spark_app.settings.models import Expectation
from spark_app.tables.definitions import rules_of_table
from spark_app.tables.expectations.in_force import as_rules, rules_by_origin, rules_with_columns

# Columns of a row; one of them is NULL.
SCHEMA = (pa.field("_schema_id", pa.int64()), pa.field("_schema_guid", pa.string()))


@dataclass(frozen=True)
class TableRules:
    """
    Attributes:
        usual: of the settings.
        by_schema: key of a schema as text -> the rules of its rows, where the schema has some.
        unclear: keys of schemas with several messages whose rules differ; a row does not say which of them it is.
    """

    usual: tuple[Rule, ...]
    by_schema: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    unclear: frozenset[str] = frozenset()

    @staticmethod
    def of(history: History, name: str, expectations: Mapping[str, Expectation]) -> TableRules:
        """The rules of a table, by its routing name."""
        wrapper, action = history.settings.wrapper.names, history.settings.schemas.proto_rules
        usual = rules_of_table(expectations, name)
        usual = rules_with_columns(usual, name, history.catalog, history.routing, wrapper)
        if action == "off":
            return TableRules(usual)
        found: dict[str, set[tuple[Rule, ...]]] = defaultdict(set)
        room = MAX_RULES - len(usual)
        for (key, _), rules in rules_by_origin(name, history.catalog, history.routing, room):
            found[str(key)].add((*usual, *as_rules(rules, action)))
        clear = {key: next(iter(rules)) for key, rules in found.items() if len(rules) == 1}
        return TableRules(usual, clear, frozenset(found.keys() - clear.keys()))

    def only(self, names: Collection[str]) -> TableRules:
        """The rules with these names; all if there are no names."""
        if not names:
            return self
        by_schema = {key: tuple(r for r in rules if r.name in names) for key, rules in self.by_schema.items()}
        return TableRules(tuple(rule for rule in self.usual if rule.name in names), by_schema, self.unclear)

    @property
    def every(self) -> dict[str, Rule]:
        """Name -> a rule of this name."""
        return {rule.name: rule for rules in (self.usual, *self.by_schema.values()) for rule in rules}

    @property
    def checks(self) -> list[Rule]:
        return list(dict.fromkeys(rule for rules in (self.usual, *self.by_schema.values()) for rule in rules))

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[Rule, ...], pa.RecordBatch, int]]:
        """(rules, the rows that they apply to, how many of these also have rules that are unclear)."""
        if not self.by_schema and not self.unclear:
            yield self.usual, rows, 0
            return
        keys = pc.coalesce(*(rows.column(one.name).cast(pa.string()) for one in SCHEMA))
        encoded = pc.dictionary_encode(keys)
        for code, key in enumerate(encoded.dictionary.to_pylist()):
            own = rows.take(pa.array(np.flatnonzero(encoded.indices.to_numpy() == code)))
            yield self.by_schema.get(key, self.usual), own, own.num_rows if key in self.unclear else 0
