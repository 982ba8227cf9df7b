# Loads an export as docs/data.md says: data.py PAGE, in a folder with export.csv. Prints what each tool has found, as JSON.
#
# The export begins with whole amounts, and so many that a tool which guesses has made up its mind.

import json
import re
import sys
from decimal import Decimal

import duckdb
import pandas
import polars

blocks = dict(re.findall(r"^## (DuckDB|pandas|polars)$.*?^```\w+\n(.*?)^```$", open(sys.argv[1]).read(), re.M | re.S))


def exact(values):
    values = list(values)
    assert all(type(value) is Decimal for value in values), {type(value) for value in values}
    return format(sum(values).normalize(), "f"), format(values[-1].normalize(), "f")


def instants(first, last):
    return [first.isoformat(timespec="milliseconds"), last.isoformat(timespec="milliseconds")]


def of_duckdb(_):
    duckdb.sql("SET TimeZone = 'UTC'")
    duckdb.execute(blocks["DuckDB"])
    rows = duckdb.sql(
        "SELECT amount, spent, epoch_ms(decided_at), typeof(decided_at) FROM 'decisions.parquet' ORDER BY sequence"
    ).fetchall()
    assert {row[3] for row in rows} == {"TIMESTAMP WITH TIME ZONE"}
    times = [pandas.Timestamp(rows[place][2], unit="ms", tz="UTC") for place in (0, -1)]
    return [len(rows), *exact(row[0] for row in rows), *exact(row[1] for row in rows), *instants(*times)]


def of_pandas(blocks):
    scope = {}
    exec(blocks["pandas"], scope)
    found = scope["decisions"]
    assert str(found["decided_at"].dtype).startswith("datetime64") and "UTC" in str(found["decided_at"].dtype)
    times = found["decided_at"].iloc[0], found["decided_at"].iloc[-1]
    return [len(found), *exact(found["amount"]), *exact(found["spent"]), *instants(*times)]


def of_polars(blocks):
    scope = {}
    exec(blocks["polars"], scope)
    found = scope["decisions"]
    assert found["amount"].dtype.is_decimal() and found["spent"].dtype.is_decimal(), found.schema
    times = found["decided_at"][0], found["decided_at"][-1]
    return [len(found), *exact(found["amount"]), *exact(found["spent"]), *instants(*times)]


print(json.dumps({"DuckDB": of_duckdb(blocks), "pandas": of_pandas(blocks), "polars": of_polars(blocks)}))
