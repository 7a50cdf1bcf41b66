"""Rows of results as structs: a schema from the columns, and a conversion for each column.

Kafka: Confluent's io.confluent.connect.jdbc.source.{SchemaMapping, NumericMapping}.
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
from typing import TYPE_CHECKING, Any, Final

from ottla.connect import data
from ottla.connect.data import Schema, SchemaType, Struct
from ottla.connect.errors import DataException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.connect.jdbc.database import Database, ResultColumn

log = logging.getLogger("ottla.connect.jdbc")
_DIGITS_MAX: Final = 18
"""Integers of so many digits fit into 64 bits."""
_OPEN_SCALE: Final = 38
"""Digits after the point of columns that set none: as many as a column of MariaDB takes."""
_EXACT: Final = decimal.Context(prec=2000, traps=[decimal.Inexact, decimal.InvalidOperation])
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_ZERO_DATE: Final = "0000-00-00"
"""MariaDB's date that stands for none; its columns have it by default where they are NOT NULL."""
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def micros_of(moment: dt.datetime) -> int:
    """Return microseconds since the epoch."""
    return (moment - EPOCH) // _MICROSECOND


class RowMapping:
    """Makes a struct of each row of one result."""

    def __init__(
        self,
        columns: Sequence[ResultColumn],
        *,
        name: str | None,
        required: Iterable[str],
        database: Database,
        values: Mapping[str, Any],
    ) -> None:
        """Take the columns, and the names of those that are never null."""
        self._database = database
        self._granularity: str = values["timestamp.granularity"]
        self._numeric: str = values["numeric.mapping"]
        if self._numeric == "none" and values["numeric.precision.mapping"]:
            self._numeric = "precision_only"
        self._never_null = never_null = set(required)
        fields: list[tuple[str, Schema]] = []
        self._conversions: list[tuple[int, Callable[[Any], Any] | None]] = []
        self._required = [index for index, it in enumerate(columns) if it.name in never_null]
        for index, column in enumerate(columns):
            made = self._field(column)
            if made is None:
                log.warning("Column %s of %s has a type without a counterpart", column.name, name)
                continue
            schema, conversion = made
            fields.append(
                (column.name, schema if column.name in never_null else schema.as_optional())
            )
            self._conversions.append((index, conversion))
        self.schema = data.struct_of(fields, name=name)

    def _field(self, column: ResultColumn) -> tuple[Schema, Callable[[Any], Any] | None] | None:
        """Return a column's schema, and the conversion of its values if they need one."""
        kind = column.type
        if kind is None:
            return None
        if isinstance(kind, SchemaType):
            conversions: dict[SchemaType, Callable[[Any], Any]] = {
                SchemaType.BYTES: bytes,
                SchemaType.STRING: str,
                SchemaType.BOOLEAN: bool,
                SchemaType.FLOAT32: float,
                SchemaType.FLOAT64: float,
            }
            return Schema(kind), conversions.get(kind)
        if kind == "decimal":
            return self._decimal(column)
        if kind == "date":
            return data.DATE, self._of_calendar(column, _to_date)
        if kind == "time":
            return data.TIME, _to_time
        schema, conversion = self._timestamp()
        return schema, self._of_calendar(column, conversion)

    def _decimal(self, column: ResultColumn) -> tuple[Schema, Callable[[Any], Any]]:
        digits, scale, mapping = column.precision, column.scale, self._numeric
        if mapping != "none" and scale is not None:
            fits = 0 < digits <= _DIGITS_MAX
            if scale == 0 and fits:
                sizes = ((9, data.INT64), (4, data.INT32), (2, data.INT16))
                return next((schema for least, schema in sizes if digits > least), data.INT8), int
            if scale > 0 and (
                (mapping == "best_fit" and fits) or mapping == "best_fit_eager_double"
            ):
                return data.FLOAT64, float
        places = _OPEN_SCALE if scale is None else scale
        unit = decimal.Decimal((0, (1,), -places))

        def convert(value: Any) -> decimal.Decimal:
            number = decimal.Decimal(value)
            try:
                if number.is_finite():
                    return number.quantize(unit, context=_EXACT)
            except decimal.DecimalException:
                pass  # it has more digits
            text = f"Column {column.name} has a number that is no decimal of scale {places}"
            raise DataException(text)

        return data.decimal(places), convert

    def _timestamp(self) -> tuple[Schema, Callable[[Any], Any]]:
        moment = self._database.to_moment
        if self._granularity == "connect_logical":
            return data.TIMESTAMP, moment
        factor = 1 if self._granularity.startswith("micros") else 1000
        if self._granularity.endswith("long"):
            return data.INT64, lambda value: micros_of(moment(value)) * factor
        return data.STRING, lambda value: str(micros_of(moment(value)) * factor)

    def _of_calendar(
        self, column: ResultColumn, conversion: Callable[[Any], Any]
    ) -> Callable[[Any], Any]:
        """Return a conversion that also takes the dates of MariaDB that no calendar has."""
        if not self._database.has_zero_dates:
            return conversion
        is_required = column.name in self._never_null

        def convert(value: Any) -> Any:
            if not isinstance(value, str):
                return conversion(value)
            # PyMySQL leaves as a text what is no date of Python
            if value.startswith(_ZERO_DATE) and not is_required:
                return None
            raise DataException(
                f"Column {column.name} has the date {value}, which no calendar has; correct it, or "
                "read NULL by a query or a view"
            )

        return convert

    def has_new_null(self, rows: Iterable[Sequence[Any]]) -> bool:
        """Whether a column that was never null is null in a row, as its table was altered."""
        return any(row[index] is None for row in rows for index in self._required)

    def struct(self, row: Sequence[Any]) -> Struct:
        """Return a row's struct."""
        made = Struct(self.schema)
        # the schema is made of the columns, so that the values fit it
        made.values = [
            value if conversion is None or value is None else conversion(value)
            for index, conversion in self._conversions
            for value in (row[index],)
        ]
        return made


def _to_date(value: Any) -> dt.date:
    return dt.date.fromisoformat(value) if isinstance(value, str) else value


def _to_time(value: Any) -> dt.time:
    if isinstance(value, dt.timedelta):  # MariaDB's TIME is a duration
        return data.time_of_day(value // dt.timedelta(milliseconds=1))
    made = dt.time.fromisoformat(value) if isinstance(value, str) else value
    return made.replace(microsecond=made.microsecond // 1000 * 1000)
