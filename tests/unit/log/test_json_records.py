from __future__ import annotations

import pytest

from tidelock.errors import PipelineError
from tidelock.log.json_records import NoRecord, arrow_columns, decode, describe_columns

SCHEMA = arrow_columns(
    describe_columns("id bigint, `a text` string, share double, tags array<string>, ok boolean")
)


def test_records_become_rows_and_what_they_lack_is_null() -> None:
    rows = decode(
        [b'{"id": 1, "a text": "x", "share": 2, "tags": ["a", null], "ok": true, "more": {}}', b'{"id": 2}'],
        SCHEMA,
    )
    assert rows.to_pylist() == [
        {"id": 1, "a text": "x", "share": 2.0, "tags": ["a", None], "ok": True},
        {"id": 2, "a text": None, "share": None, "tags": None, "ok": None},
    ]
    assert decode([], SCHEMA).num_rows == 0


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"{", "no JSON"),
        (None, "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"id": "one"}', "id is no int64"),
        (b'{"id": 99999999999999999999}', "id is no int64"),
        (b'{"tags": 3}', "tags is no list"),
    ],
)
def test_a_record_that_does_not_fit_is_found(record: bytes | None, why: str) -> None:
    with pytest.raises(NoRecord) as wrong:
        decode([b'{"id": 1}', record], SCHEMA)
    assert wrong.value.args[0] == 1
    assert why in wrong.value.args[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no list of columns"),
        ("id", "no list of columns"),
        ("at timestamp", "cannot have the type 'timestamp'"),
        ("n int, n long", "has the column n twice"),
        (f"n {'array<' * 2000}int{'>' * 2000}", "arrays inside of each other"),
    ],
)
def test_columns_that_cannot_be(text: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        describe_columns(text)
