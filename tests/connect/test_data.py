"""Schemas, structs, and values that do not fit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.data import (
    BYTES,
    DATE,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    TIMESTAMP,
    Schema,
    Struct,
    array,
    check_value,
    decimal,
    mapping,
    struct,
    struct_of,
)
from ottla.connect.errors import DataException, SchemaBuilderException

ORDER = struct("order", id=INT64, note=STRING.as_optional())


def test_a_struct_has_the_fields_of_its_schema() -> None:
    """By name; a field that is not set is None, or its default."""
    order = Struct(ORDER, id=5)
    assert (order["id"], order["note"]) == (5, None)
    assert order == Struct(ORDER, id=5, note=None)
    assert repr(order) == "Struct{id=5}"
    with pytest.raises(DataException, match=r"^price is not a valid field name$"):
        order["price"]
    with pytest.raises(DataException, match=r'^Invalid value: null used for required field: "id"'):
        Struct(ORDER).validate()


def test_two_fields_of_a_name() -> None:
    """Found in one pass: the schemas of messages may have any number of fields."""
    names = [*map(str, range(50_000)), "49999"]
    with pytest.raises(SchemaBuilderException, match=r"field name duplication 49999$"):
        struct_of((name, INT8) for name in names)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 127),
        (FLOAT64, 0.5),
        (BYTES, memoryview(b"x")),
        (array(STRING), ["a"]),
        (mapping(STRING, INT8), {"a": 1}),
        (ORDER, Struct(ORDER, id=1)),
        (decimal(2), Decimal("1.25")),
        (DATE, dt.date(2026, 1, 1)),
        (TIMESTAMP, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (STRING.as_optional(), None),
    ],
)
def test_values_that_fit(schema: Schema, value: Any) -> None:
    """Nothing is said of them."""
    check_value(schema, value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT8, True),
        (INT8, "1"),
        (FLOAT64, 1),
        (STRING, None),
        (array(STRING), [1]),
        (mapping(STRING, INT8), {1: 1}),
        (mapping(STRING, INT8), {"a": None}),
        (ORDER, Struct(struct("other", id=INT64), id=1)),
        (decimal(2), 1.25),
        (DATE, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (TIMESTAMP, dt.date(2026, 1, 1)),
    ],
)
def test_values_that_do_not_fit(schema: Schema, value: Any) -> None:
    """The class, the range, or an element."""
    with pytest.raises(DataException, match=r"^(Invalid (value|object)|Struct schemas do)"):
        check_value(schema, value)
