"""Checks of expectations that are accepted: which functions they may call, and which columns they name."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.model.errors import ConfigurationError
from spark_app.tables.expectations import checks
from spark_app.tables.expectations.checks import check_columns, columns_of
from spark_app.tables.sql import pure_functions
from spark_app.tables.sql.engine import connection, failures
from tests.support.examples import examples
from tests.unit.tables.test_expectation_refusals import REFUSED, SCHEMA


def test_every_scalar_function_that_is_not_consistent_is_refused() -> None:
    volatile = connection().sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar' "
        "AND stability <> 'CONSISTENT' OR function_type IN ('table', 'table_macro', 'pragma', 'aggregate', 'window')"
    )
    both = {"generate_series", "range", "repeat"}  # scalar functions too
    for (name,) in volatile.fetchall():
        if name not in both:
            with pytest.raises(ConfigurationError, match=r"^expectations\.rule\.check: "):
                columns_of("rule", f'"{name}"() IS NULL')


def test_macros_are_allowed_if_their_definitions_are() -> None:
    allowed = {
        name
        for name, overloads in pure_functions._functions().items()
        if overloads[0].kind == "macro" and not pure_functions.problem_of(name, lambda text: _columns(text))
    }
    assert {"nullif", "split_part", "list_sum", "list_avg", "if", "date_add", "fmod", "array_to_string"} <= allowed
    assert not [name for name in allowed if name.startswith(("pg_", "has_", "inet_", "current_"))]


def _columns(text: str) -> set[str]:
    return checks._columns_in(checks._one_expression(text)[1])


ACCEPTED = [
    "bet > 0",
    "BET > 0",
    '"bet" > 0',
    '"BET" > 0',
    "bet >= 0 AND win >= 0",
    "NOT (bet < 0 OR win < 0)",
    "bet <> win",
    "bet != win",
    "bet == win",
    "bet IS DISTINCT FROM win",
    "bet IN (1, 2, 3)",
    "bet NOT IN (1, 2)",
    "(bet, win) IN ((1, 1), (2, 2))",
    "bet IN scores",
    "bet BETWEEN 0 AND 100",
    "bet NOT BETWEEN 0 AND 100",
    "bet IS NOT NULL",
    "bet IS NULL OR bet > 0",
    "bet ISNULL",
    "won",
    "won IS TRUE",
    "won IS NOT FALSE",
    "true",
    "NULL::BOOLEAN",
    "bet % 5 = 0",
    "bet // 2 > 0",
    "bet & 1 = 1",
    "-bet < 0",
    "@bet > 0",
    "bet ^ 2 > 4",
    "abs(bet) + sign(win) > 0",
    "greatest(bet, win) > 0",
    "rate BETWEEN 0.0 AND 1.0",
    "isnan(rate)",
    "isfinite(rate) AND NOT isinf(rate)",
    "round(rate, 2) = rate",
    "price > 0.0001",
    "price <= 9999999999999999.9999",
    "price::DECIMAL(10, 2) = price",
    "CAST(price AS DOUBLE) < 1e9",
    "TRY_CAST(game_name AS INTEGER) IS NOT NULL",
    "TRY(game_name::INTEGER) > 0",
    "game_name = 'rummy'",
    "game_name LIKE 'rum%'",
    "game_name NOT LIKE '%\\_%' ESCAPE '\\'",
    "game_name ILIKE 'RUM%'",
    "game_name GLOB 'r*'",
    "game_name SIMILAR TO 'r.*'",
    "game_name ~ '^r'",
    "game_name COLLATE NOCASE = 'RUMMY'",
    "game_name || '' <> ''",
    "regexp_matches(game_name, '^[a-z]+$')",
    "regexp_full_match(game_name, '[a-z]+', 'i')",
    "regexp_extract(game_name, '(.)', 1) = 'r'",
    "length(game_name) BETWEEN 1 AND 64",
    "LOWER(game_name) = game_name",
    "trim(BOTH ' ' FROM game_name) = game_name",
    "substring(game_name, 1, 2) = 'ru'",
    "game_name[1] = 'r'",
    "split_part(game_name, '-', 1) <> ''",
    "position('x' IN game_name) = 0",
    "starts_with(game_name, 'r')",
    "contains(game_name, 'u')",
    "string_split(game_name, ',')[1] = 'r'",
    "replace(game_name, '''', '') = game_name",
    "game_name = 'it''s; -- not a comment'",
    "game_name <> $$a'b$$",
    "game_name <> e'\\n'",
    "md5(game_name) <> ''",
    "nullif(game_name, '') IS NOT NULL",
    "coalesce(game_name, '') <> ''",
    "ifnull(bet, 0) >= 0",
    "if(won, win > 0, win = 0)",
    "CASE WHEN won THEN win > 0 ELSE win = 0 END",
    "CASE game_name WHEN 'rummy' THEN bet > 0 END",
    "event_timestamp >= TIMESTAMPTZ '2020-01-01 00:00:00+00'",
    "event_timestamp BETWEEN _kafka_timestamp - INTERVAL 7 DAY AND _kafka_timestamp + INTERVAL '5 minutes'",
    "event_timestamp <= _landed_at",
    "age(_landed_at, event_timestamp) < INTERVAL 1 YEAR",
    "date_diff('day', event_timestamp, _kafka_timestamp) < 7",
    "date_trunc('day', event_timestamp) <= _kafka_timestamp",
    "extract(year FROM event_timestamp) >= 2020",
    "year(day) >= 2020 AND month(day) <> 13",
    "local < TIMESTAMP '2100-01-01 00:00:00'",
    "local AT TIME ZONE 'Asia/Kolkata' < _landed_at",
    "day < DATE '2100-01-01'",
    "day + INTERVAL 1 MONTH > DATE '2020-01-01'",
    "days_in_month(day) > 27",
    "strftime(day, '%Y') >= '2020'",
    "try_strptime(game_name, '%Y-%m-%d') IS NULL",
    "epoch_ms(event_timestamp) > 0",
    "octet_length(raw) < 1000",
    "raw <> '\\x00'::BLOB",
    "level IN ('low', 'high')",
    "len(scores) > 0",
    "scores[1] > 0 AND scores[-1] > 0",
    "scores[1:2] = [1, 2]",
    "list_contains(scores, bet)",
    "len(list_filter(scores, lambda x: x < 0)) = 0",
    "len(list_filter(scores, lambda x, i: x < i + bet)) = 0",
    "list_transform(scores, lambda x: x * 2)[1] > 0",
    "list_reduce(scores, lambda x, y: x + y) > 0",
    "[x * 2 for x in scores if x > 1] <> []",
    "list_sum(scores) > 0",
    "list_aggregate(scores, 'max') <= 100",
    "list_unique(scores) = len(scores)",
    "list_sort(scores, 'DESC') = list_reverse(list_sort(scores))",
    "cardinality(tags) > 0",
    "tags['a'] > 0",
    "map_contains(tags, 'a')",
    "list_contains(map_keys(tags), 'a')",
    "map {'a': 1}['a'] = bet",
    "player.id <> ''",
    "player.home.city IS NOT NULL",
    "player['id'] <> ''",
    "struct_extract(player, 'id') <> ''",
    "PLAYER.Home.CITY = 'x'",
    "player IS NOT NULL",
    "{'a': bet}.a > 0",
    "player.id = {'id': game_name}.id",
    '"Mixed" > 0',
    "mixed > 0",
    '"select" > 0',
    "document::JSON ->> '$.kind' = 'x'",
    "json_valid(document)",
    "document IS NULL OR json_extract_string(document, '$.a') IS NOT NULL",
    "_topic = 'games' AND _partition >= 0 AND _offset >= 0",
    "_schema_id > 0 OR _schema_guid IS NOT NULL",
    "_topic_id IS NOT NULL",
    "_KEY IS NOT NULL",
    "bet > 0 -- no bet is free",
    "bet > 0 /* no bet is free */ AND won",
    "-- a comment first\nbet > 0",
    "bet > 0\n\tAND win > 0\n",
    "(((bet > 0)))",
    "(" * 150 + "won" + ")" * 150,
    "bet" + " + 1" * 150 + " > 0",
    "won" + " AND bet > 0" * 300,
    "game_name <> '\u0440\u0435\u0442 \U0001f3b2'",
    "CASE " + "WHEN bet = 1 THEN won " * 100 + "END",
    "current_user2 IS NULL OR bet > 0",
]


@pytest.mark.parametrize("check", ACCEPTED, ids=lambda check: ascii(check)[1:50])
def test_a_legitimate_check_is_accepted_and_can_be_evaluated(check: str) -> None:
    schema = SCHEMA.append(pa.field("current_user2", pa.string()))
    check_columns("rule", check, [schema])
    row = pa.schema([*checks.LINEAGE, *schema]).empty_table()
    row = pa.table([pa.nulls(1, field.type) for field in row.schema], schema=row.schema)
    with_errors = failures(row, [check]).tolist()
    assert with_errors in ([0], [1])


def test_there_are_as_many_cases_as_there_should_be() -> None:
    assert len(set(REFUSED)) >= 200
    assert len(set(ACCEPTED)) >= 100


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        ("bet > 0 AND Win > bet", {"bet", "Win"}),
        ("player.home.city = 'x'", {"player"}),
        ("list_filter(scores, lambda x: x > bet) = []", {"scores", "bet"}),
        ("list_filter(x, lambda x: X > 1) = x", {"x"}),
        ("list_filter(a, lambda y: list_filter(b, lambda z: z > y + c) = [w]) = []", {"a", "b", "c", "w"}),
        ("document -> '$.a' IS NULL", {"document"}),
        ("[x + y for x in scores] = []", {"scores", "y"}),
        ("true", set()),
        ('"a b" = 1 AND "A" = 2 AND a = 1', {"a b", "A", "a"}),
        ("CASE WHEN a THEN b ELSE c END", {"a", "b", "c"}),
        ("a::INT BETWEEN b AND c COLLATE nocase", {"a", "b", "c"}),
    ],
)
def test_columns_are_those_that_the_check_names(check: str, columns: set[str]) -> None:
    assert columns_of("rule", check) == columns


OTHER = pa.schema([("stake", pa.int32()), ("game_name", pa.int64()), ("player", pa.struct([("age", pa.int32())]))])


def test_a_column_of_another_message_is_null_of_its_type() -> None:
    check_columns("rule", "bet > 0 OR stake > 0", [SCHEMA, OTHER], required=[SCHEMA, OTHER])
    with pytest.raises(ConfigurationError, match="stak; did you mean stake"):
        check_columns("rule", "bet > 0 OR stak > 0", [SCHEMA, OTHER])


def test_a_check_binds_on_one_message_and_on_each_table_that_exists() -> None:
    check = "player.age > 0"
    check_columns("rule", check, [SCHEMA, OTHER])
    check_columns("rule", check, [SCHEMA, OTHER], required=[OTHER])
    with pytest.raises(ConfigurationError, match=r"^expectations\.rule\.check: .*age"):
        check_columns("rule", check, [SCHEMA, OTHER], required=[OTHER, SCHEMA])
    with pytest.raises(ConfigurationError):
        check_columns("rule", check, [SCHEMA])


def test_before_there_are_messages_only_the_text_is_checked() -> None:
    check_columns("rule", "whatever > 0", [])
    for check in ("current_date > whatever", "_offset", "sum(whatever) > 0"):
        with pytest.raises(ConfigurationError):
            check_columns("rule", check, [])


def test_a_column_may_have_the_name_of_a_word_for_the_session() -> None:
    check_columns(
        "rule", "user <> '' AND localtime > 0", [pa.schema([("user", pa.string()), ("localtime", pa.int64())])]
    )


WORDS = "bet > 0 ( ) ' \" -- /* */ ; , SELECT FROM x AND $$ OVER now() * ::INT [ ] { } CASE WHEN THEN END \\ : lambda"
HOSTILE = st.lists(st.sampled_from([*WORDS.split(), " ", "\n"]), max_size=12).map(" ".join)


@given(HOSTILE)
@examples()
def test_whatever_a_check_says_it_is_refused_in_one_line_or_evaluated_row_by_row(check: str) -> None:
    said = ""
    try:
        check_columns("rule", check, [SCHEMA])
        rows = pa.table({"bet": pa.array([1, None, -1], pa.int64())})
        assert failures(rows, [check]).shape == (3,)
    except ConfigurationError as error:
        said = str(error)
    assert not said or said.startswith("expectations.rule.check: ")
    assert len(said) < 300
