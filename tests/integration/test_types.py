"""All Spark SQL types pass through a log unchanged, whatever the session's time zone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.streams import Place, collect, finish

from tidelock.errors import SchemaMismatch

COLUMNS = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id - 2 as tinyint)",
    "smallint": "cast(id * -300 as smallint)",
    "int": "cast(id * 100000 as int)",
    "bigint": "id * 10000000000",
    "float": "cast(id / 3 as float)",
    "double": "case id when 1 then double('NaN') when 2 then double('-Infinity') else id / 7 end",
    "decimal": "cast(id / 7 as decimal(38, 18))",
    "small_decimal": "cast(id as decimal(4, 2))",
    "string": "concat('ünïcödé \\u0000 ', id)",
    "empty": "''",
    "collated": "collate(concat('A', id), 'UTF8_LCASE')",
    "varchar": "cast(concat('v', id) as varchar(10))",
    "binary": "cast(concat('\\u0000ÿ', id) as binary)",
    "date": "date_add(date'0001-01-01', cast(id * 700000 as int))",
    "timestamp": "timestamp_micros(id * 1234567890123457 - 62135596800000000)",
    "timestamp_ntz": "timestamp_ntz'1969-12-31 23:59:59.999999' + make_dt_interval(cast(id as int))",
    "interval_day": "make_dt_interval(cast(id as int), 2, 3, 4.000005)",
    "void": "null",
    "variant": "parse_json(concat('{\"a\": [', id, ', null, \"x\"]}'))",
    "array": "array(id, null, id + 1)",
    "empty_array": "cast(array() as array<string>)",
    "map": "map('k', id, 'none', null)",
    "struct": "named_struct('a', id, 'b', named_struct('c', array(named_struct('d', timestamp_micros(id)))))",
    "nested": "map(id, array(map('x', named_struct('t', timestamp_micros(id), 'n', cast(id as decimal(20, 3))))))",
    "with space.and`tick": "id",
}


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", str(before))


def test_every_type_and_every_null_comes_back(place: Place, zone: str) -> None:
    place.feed("ids", [[{"id": i} for i in range(4)], [{"id": None}, {"id": 9}]])
    named = [F.expr(text).alias(name) for name, text in COLUMNS.items()]
    written = place.input("ids").select("id", *named)
    nulls = [F.when(F.col("id") != 3, F.col(f"`{name.replace('`', '``')}`")).alias(name) for name in COLUMNS]
    written = written.select("id", *nulls)
    place.write(written, "types")
    read = place.spark.read.format("tidelock").option("log", place.url("types")).load()
    assert [f.dataType for f in read.schema] == [f.dataType for f in _nullable(written)]
    ids = place.spark.read.parquet(str(place.home / "input" / "ids"))
    expected = _texts(ids.select("id", *named).select("id", *nulls))
    assert len(expected) == 6
    assert _texts(read) == expected
    batches = collect(_as_text(place.read("types")), place.checkpoint("c")).values()
    assert sorted(chain.from_iterable(batches)) == expected


def _nullable(stream):
    """The fields as Spark's own file source would give them: everything nullable."""
    import json

    from pyspark.sql.types import StructType

    text = stream.schema.json()
    for flag in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{flag}":false', f'"{flag}":true')
    return StructType.fromJson(json.loads(text))


def _as_text(table):
    """Rows as Spark itself prints them in full: equal text is equal value, NaN and binary included."""
    hashed = [F.to_json(F.struct(F.col("id"), F.col("struct"), F.col("nested"), F.col("array"), F.col("map")))]
    plain = [
        F.coalesce(F.col(f"`{name.replace('`', '``')}`").cast("string"), F.lit("∅"))
        for name in COLUMNS
        if name not in ("struct", "nested", "array", "map", "empty_array", "binary", "variant")
    ]
    others = [F.hex("binary"), F.to_json("variant"), F.size("empty_array")]
    return table.select(F.concat_ws("|", *hashed, *plain, *others))


def _texts(table) -> list[tuple[str]]:
    return sorted(tuple(row) for row in _as_text(table).collect())


def test_no_columns_can_be_selected_but_not_stored(place: Place) -> None:
    place.feed("ids", [[{"id": 1}, {"id": 2}], [{"id": 3}]])
    with pytest.raises(SchemaMismatch, match="there are no columns to store"):
        place.write(place.input("ids").select(), "nothing")
    place.write(place.input("ids"), "ids")
    with pytest.raises(SchemaMismatch, match="no columns were asked for"):
        place.read("ids", columns=[])
    table = place.spark.read.format("tidelock").option("log", place.url("ids")).load()
    assert (table.count(), table.select().count()) == (3, 3)
    assert collect(place.read("ids").select(), place.checkpoint("c")) == {0: [(), ()], 1: [()]}


def test_an_epoch_without_rows_is_an_epoch(place: Place) -> None:
    place.feed("ids", [[{"id": 1}], [{"id": -1}], [{"id": 2}]])
    place.write(place.input("ids").where("id > 0"), "some")
    assert place.rows("some") == {0: [(1,)], 1: [], 2: [(2,)]}
    assert collect(place.read("some"), place.checkpoint("c")) == {0: [(1,)], 1: [], 2: [(2,)]}
    finish(place.write(place.read("some"), "again"))
    assert place.rows("again") == {0: [(1,)], 1: [], 2: [(2,)]}
