"""Rows as structs, without a database: the dates of MariaDB that no calendar has."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from ottla.connect.errors import DataException
from ottla.connect.jdbc.database import ResultColumn
from ottla.connect.jdbc.dialects import database
from ottla.connect.jdbc.rows import RowMapping
from ottla.connect.jdbc.settings import SOURCE
from ottla.connect.jdbc.url import parse_address


def mapping(kind: str, *required: str, granularity: str = "connect_logical") -> RowMapping:
    """Return the mapping of a table of MariaDB with one column `x`."""
    given = {
        "connection.url": "jdbc:mariadb://db/shop", "mode": "bulk", "topic.prefix": "",
        "timestamp.granularity": granularity,
    }  # fmt: skip
    values = SOURCE.parse(given)
    return RowMapping(
        [ResultColumn("x", kind)],
        name="days",
        required=required,
        database=database(parse_address(values, given), values),
        values=values,
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", "0000-00-00"),
        ("timestamp", "0000-00-00 00:00:00"),
        ("timestamp", "0000-00-00 00:00:00.000000"),
    ],
)
def test_a_zero_date_is_null_where_it_may_be(kind: str, text: str) -> None:
    """Else the error has one line, with the column."""
    assert mapping(kind).struct([text]).values == [None]
    assert mapping(kind, granularity="nanos_long").struct([text]).values == [None]
    with pytest.raises(DataException) as caught:
        mapping(kind, "x").struct([text])
    assert str(caught.value) == (
        f"Column x has the date {text}, which no calendar has; correct it, or read NULL by a query "
        "or a view"
    )


@pytest.mark.parametrize("kind", ["date", "timestamp"])
@pytest.mark.parametrize("text", ["2024-00-15", "2024-02-31", "2024-13-01 00:00:00"])
def test_other_dates_that_no_calendar_has_are_refused(kind: str, text: str) -> None:
    """They say something, so that they are not null."""
    with pytest.raises(DataException, match=f"Column x has the date {text}, which no calendar"):
        mapping(kind).struct([text])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("date", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        ("timestamp", dt.datetime(2024, 2, 29, 1), dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)),  # noqa: DTZ001 - as the driver
    ],
)
def test_dates_stay(kind: str, value: Any, expected: Any) -> None:
    """As the driver has them, in columns of both sorts."""
    assert mapping(kind).struct([value]).values == [expected]
    assert mapping(kind, "x").struct([value]).values == [expected]
