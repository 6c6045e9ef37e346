"""Checks of expectations: what is no pure expression of one row is refused in one line."""

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_app.expectations import checks, pure_functions
from spark_app.expectations.checks import check_columns, columns_of
from spark_app.expectations.engine import connection, failures
from spark_app.model.errors import ConfigurationError, ExitCode
from tests.support.examples import examples

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("bet", pa.int64()),
        ("win", pa.int64()),
        ("rate", pa.float64()),
        ("price", pa.decimal128(20, 4)),
        ("game_name", pa.string()),
        ("won", pa.bool_()),
        ("event_timestamp", UTC),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("level", pa.dictionary(pa.int32(), pa.string())),
        ("scores", pa.list_(pa.int64())),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("player", pa.struct([("id", pa.string()), ("home", pa.struct([("city", pa.string())]))])),
        ("Mixed", pa.int32()),
        ("select", pa.int32()),
        ("document", pa.string()),
    ]
)

LEAVING = [
    "true) FROM x --",
    "true)) FROM x --",
    "true) OR (true",
    "true), (false",
    "true)::BOOLEAN, (1",
    "true) THEN 0 ELSE 0 END --",
    "true)), false) THEN 0 ELSE 0 END FROM secrets; --",
    "a; DROP TABLE x",
    "bet > 0; DROP TABLE x; --",
    "bet > 0;",
    "bet > 0; ;",
    "; bet > 0",
    "true; SELECT 1",
    "true; COPY (SELECT 1) TO '/tmp/x'",
    "true; ATTACH '/tmp/x.db' AS x",
    "true; SET threads = 8",
    "true /*",
    "true */",
    "/* true",
    "-- true",
    "'",
    "'abc",
    '"bet',
    "$$bet",
    "$tag$ bet $ta$",
    "bet > 0)",
    "(bet > 0",
    "bet >",
    "> 0",
    "bet > 0 AND",
    "bet BETWEEN 1",
    "CASE WHEN won THEN true",
    "bet > 0, win > 0",
    "bet > 0 AS good",
    "bet > 0 good",
    'bet > 0 "good"',
    "good: bet > 0",
    "won INTO x",
    "ALL won",
    "DISTINCT won",
    "DISTINCT ON (bet) won",
    "won UNION SELECT true",
    "won UNION ALL FROM x",
    "won EXCEPT SELECT false",
    "won FROM x",
    "won FROM range(3)",
    "won FROM read_text('/etc/passwd')",
    "won FROM '/etc/passwd'",
    "won WHERE bet > 0",
    "won GROUP BY ALL",
    "won HAVING true",
    "won QUALIFY true",
    "won ORDER BY bet",
    "won LIMIT 1",
    "won OFFSET 1",
    "won USING SAMPLE 1",
    "won WINDOW w AS ()",
    "won FOR UPDATE",
]
STATEMENTS = [
    "ATTACH '/tmp/x.db'",
    "COPY x TO '/tmp/x'",
    "SET threads = 8",
    "RESET threads",
    "PRAGMA version",
    "pragma_version()",
    "CALL pragma_version()",
    "INSTALL httpfs",
    "LOAD httpfs",
    "DROP TABLE x",
    "CREATE TABLE x (i INT)",
    "INSERT INTO x VALUES (1)",
    "EXPLAIN SELECT 1",
    "SELECT true",
    "FROM x",
    "VALUES (true)",
    "WITH x AS (SELECT 1) SELECT true",
    "DESCRIBE x",
    "USE x",
    "EXPORT DATABASE '/tmp/x'",
]
MANY_ROWS = [
    "(SELECT true)",
    "EXISTS (SELECT 1)",
    "NOT EXISTS (SELECT 1 FROM x)",
    "bet IN (SELECT 1)",
    "bet NOT IN (FROM x)",
    "bet = ANY (SELECT 1)",
    "bet > ALL (SELECT 1)",
    "bet = ANY (scores)",
    "(VALUES (true))",
    "(FROM x)",
    "CASE WHEN won THEN (SELECT true) END",
    "list_filter(scores, lambda x: x IN (SELECT 1)) = []",
    "ARRAY (SELECT 1) = scores",
    "row_number() OVER () = 1",
    "sum(bet) OVER (PARTITION BY game_name) > 0",
    "lag(bet) OVER (ORDER BY win) < bet",
    "rank() OVER w = 1",
    "sum(bet) > 0",
    "count(*) > 0",
    "count() > 0",
    "count(bet) FILTER (WHERE won) > 0",
    "max(bet ORDER BY win) > 0",
    "count(DISTINCT bet) > 0",
    "first(won)",
    "bool_and(won)",
    "row_number()",
    "abs(DISTINCT bet) > 0",
    "abs(bet) FILTER (WHERE won) > 0",
    "abs(bet ORDER BY win) > 0",
    "geomean(rate) > 0",
    "json_group_array(bet) = '[]'",
    "grouping(bet) = 0",
    "unnest(scores) > 0",
    "generate_subscripts(scores, 1) > 0",
    "*",
    "COLUMNS(*)",
    "COLUMNS(*) > 0",
    "COLUMNS('b.*') > 0",
    "player.*",
    "x.*",
    "* EXCLUDE (bet)",
    "*scores",
    "?",
    "bet > ?",
    "bet > $1",
    "bet > $least",
    "#1",
    "#1 > 0",
    "scores[#1] > 0",
    "DEFAULT",
    "bet = DEFAULT",
]
IMPURE = [
    "random() > 0.5",
    "RANDOM() > 0.5",
    "setseed(0.5) IS NULL",
    "uuid() IS NOT NULL",
    "gen_random_uuid() IS NOT NULL",
    "uuidv7() IS NOT NULL",
    "now() > event_timestamp",
    "today() > day",
    "get_current_timestamp() > event_timestamp",
    "current_date > day",
    "current_date() > day",
    "current_timestamp > event_timestamp",
    "current_time IS NULL",
    "localtime IS NULL",
    "LOCALTIMESTAMP > local",
    "current_localtimestamp() > local",
    "current_localtime() IS NULL",
    "transaction_timestamp() > event_timestamp",
    "age(event_timestamp) < INTERVAL 1 DAY",
    "ago(INTERVAL 1 DAY) < event_timestamp",
    "txid_current() > 0",
    "current_query() = ''",
    "current_setting('threads') = '1'",
    "getvariable('x') IS NULL",
    "nextval('x') > 0",
    "currval('x') > 0",
    "sleep_ms(1000) IS NULL",
    "pg_sleep(1) IS NULL",
    "write_log('x') IS NULL",
    "error('x') IS NULL",
    "stats(bet) = ''",
    "vector_type(bet) = ''",
    "version() = 'v1'",
    "hash(bet) = 1",
    "in_search_path('x', 'y')",
    "current_user = 'duckdb'",
    "user = 'duckdb'",
    "user() = 'duckdb'",
    "current_role() = 'duckdb'",
    "session_user = 'duckdb'",
    "current_schema() = 'main'",
    "current_schemas(true) = []",
    "current_database() = 'memory'",
    "current_catalog = 'memory'",
    "pg_typeof(bet) = 'bigint'",
    "pg_get_viewdef(1) IS NULL",
    "pg_postmaster_start_time() > event_timestamp",
    "pg_my_temp_schema() = 0",
    "has_table_privilege('x', 'y')",
    "inet_server_addr() IS NULL",
    "obj_description(1, 'x') IS NULL",
    "format_type(1, 1) = 'x'",
    "get_block_size('memory') > 0",
    "json_serialize_plan('SELECT 1') IS NULL",
    "json_execute_serialized_sql('x') IS NULL",
    "read_text('/etc/passwd') IS NULL",
    "read_blob('/etc/passwd') IS NULL",
    "read_csv('/etc/passwd') IS NULL",
    "read_parquet('s3://x/y') IS NULL",
    "glob('/etc/*') IS NULL",
    "query('SELECT 1') IS NULL",
    "duckdb_settings() IS NULL",
    "duckdb_secrets() IS NULL",
    "which_secret('x', 'y') IS NULL",
    "getenv('HOME') = ''",
    "database_size() IS NULL",
    "list_aggregate(scores, game_name) > 0",
    "list_aggregate(scores, 'reservoir' || '_quantile', 0.5) > 0",
    "list_aggr(scores, 'reservoir_quantile', 0.5) > 0",
    "list_filter(scores, lambda x: x > random()) = []",
    "CASE WHEN won THEN random() > 0.5 ELSE true END",
    "coalesce(won, random() > 0.5)",
    "__internal_decompress_string(bet) = ''",
    "system.main.random() > 0.5",
    '"random"() > 0.5',
    "main.lower(game_name) = 'x'",
    "game_name.lower() = 'x'",
]
CLUMSY = [
    "",
    " ",
    "\n\t",
    "bet",
    "bet + 1",
    "'true'",
    "NULL",
    "1",
    "game_name",
    "scores",
    "player",
    "event_timestamp",
    "bett > 0",
    "gamename = 'x'",
    "plyer.id = 'x'",
    "nosuch",
    "true AND nosuch",
    '"bet > 0"',
    '"Bet " > 0',
    '"the rows".bet > 0',
    "rowid > 0",
    "x.bet > 0",
    "_definition > 0",
    "player.nosuch = 'x'",
    "bet.x > 0",
    "lowr(game_name) = 'x'",
    "is_empty(game_name)",
    "game_name > 1",
    "scores > 1",
    "game_name::nosuch = 'x'",
    "list_transform(scores, x -> x + 1) = []",
    "length(bet) > 0",
    "substring(game_name) = 'x'",
    "bet == = 0",
    "bet <> = 0",
    "bet IS NOT",
    "coalesce()",
    "game_name like",
    "INTERVAL 1 DAY",
    "if(won)",
    "bet > 0 && win > 0",
    "b\u0435t > 0",  # a Cyrillic letter
    '"bet\u200b" > 0',
    "be\u200bt > 0",
    "at > TIMESTAMP '2020-01-01'",  # a word of SQL
    "\u202ebet > 0",
    "bet > 0 \u2066",
    "bet\x00 > 0",
    "bet > 0\r\nAND won",
    "bet > \x1b[31m0",
    "bet > 0 \x7f",
    "bet \uff1e 0",
    "bet > \u0661",
    "\u201cbet\u201d > 0",
    "NOT " * 900 + "won",
    "(" * 1900 + "won" + ")" * 1900,
    "(" * 3900,
    "[" * 3900,
    "abs(" * 700 + "bet" + ")" * 700 + " > 0",
    "bet" + " + 1" * 300 + " > 0",
    "- " * 500 + "bet > 0",
    "CASE WHEN won THEN " * 180 + "won" + " ELSE NOT NOT won END" * 180,
    "bet" + "::INT" * 400 + " > 0",
    "{'a': " * 300 + "1" + "}" * 300 + " IS NULL",
    "won OR " * 600 + "won",
    "'" + "x" * 4000 + "' = game_name",
    "x" * 3990,
    "lower" * 700 + "(game_name) = 'x'",
    "won" + " " * 4000,
]
REFUSED = LEAVING + STATEMENTS + MANY_ROWS + IMPURE + CLUMSY


def said_of(check: str, name: str = "rule") -> str:
    with pytest.raises(ConfigurationError) as refused:
        check_columns(name, check, [SCHEMA])
    assert refused.value.exit_code == ExitCode.CONFIGURATION
    return str(refused.value)


@pytest.mark.parametrize("check", REFUSED, ids=lambda check: ascii(check)[1:50])
def test_what_is_no_expression_of_a_row_is_refused_in_one_line(check: str) -> None:
    began = time.monotonic()
    said = said_of(check)
    assert said.startswith("expectations.rule.check: ")
    assert said.isprintable()
    assert 30 < len(said) < 300
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("bett > 0", "no column has the name bett; did you mean bet?"),
        ("GAME_NAM = 'x'", "did you mean game_name?"),
        ("lowr(game_name) = 'x'", "there is no function lowr(); did you mean lower"),
        ("bet + 1", "of the type BIGINT, and has to be BOOLEAN"),
        ("'true'", "of the type VARCHAR"),
        ("(SELECT true)", "a subquery is not allowed"),
        ("sum(bet) > 0", "sum() is computed over many rows"),
        ("row_number() OVER () = 1", "a window function is not allowed"),
        ("random() > 0.5", "random() does not always give the same"),
        ("current_date > day", "may not read the clock or the session"),
        ("age(event_timestamp) IS NULL", "reads the clock; give it two"),
        ("read_text('/etc/passwd') IS NULL", "read_text() gives a table"),
        ("true; DROP TABLE x", "is more than one statement"),
        ("bet >", "is not one SQL expression: syntax error"),
        ("COLUMNS(*)", "name the columns"),
        ("bet > $1", "write the value"),
        ("NOT " * 900 + "won", "nested more than 200 deep"),
        ("'" + "x" * 4000 + "' = game_name", "has 4014 characters, and may have 4000"),
        ("bet > 0 \x07", "control character"),
        ("\u202ebet > 0", "direction mark '\\u202e'"),
        ("game_name.lower() = 'x'", "write lower(...)"),
        ("won AS x", "has an alias"),
        ("won FROM x", "is a query"),
        ("", "is empty"),
    ],
    ids=lambda text: ascii(text)[1:50],
)
def test_a_refusal_says_what_is_wrong(check: str, says: str) -> None:
    assert says in said_of(check)


def test_a_refusal_names_its_rule() -> None:
    assert said_of("nosuch", "a" * 64).startswith(f"expectations.{'a' * 64}.check: ")


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
