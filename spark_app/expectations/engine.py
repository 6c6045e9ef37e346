import functools


@functools.cache
def connection():
    import duckdb

    c = duckdb.connect(config={"threads": "1", "enable_external_access": "false"})
    c.execute("SET TimeZone='UTC'")
    c.execute("PRAGMA disable_optimizer")
    c.execute("SET lock_configuration=true")
    return c


def failures(rows, checks):
    c = connection()
    text = (
        "SELECT "
        + " | ".join(
            f"CASE WHEN COALESCE(TRY((\n{x}\n)), false) THEN 0 ELSE {1 << i}::BIGINT END" for i, x in enumerate(checks)
        )
        + ' AS failed FROM "protolake rows"'
    )
    c.register("protolake rows", rows)
    try:
        return c.sql(text).to_arrow_table().column(0).to_numpy()
    finally:
        c.unregister("protolake rows")
