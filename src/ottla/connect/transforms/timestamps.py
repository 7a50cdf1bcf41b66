"""Changes timestamps between texts, numbers and the logical types.

Kafka: org.apache.kafka.connect.transforms.TimestampConverter.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.checks import one_of
from ottla.config.definition import HIGH, LOW, ConfigDefinitions, Type
from ottla.connect.data import (
    DATE,
    DATE_NAME,
    DAY_MS,
    INT64,
    STRING,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    Schema,
    SchemaType,
    Struct,
    check_value,
    date,
    time_of_day,
    timestamp,
    timestamp_ms,
)
from ottla.connect.date_format import DateFormat
from ottla.connect.errors import ConnectException, DataException
from ottla.connect.transforms import (
    FieldTransformation,
    class_name,
    config_error,
    fields_of,
    put,
    require_map,
    require_struct,
    with_default_setting,
)
from ottla.connect.values import saturated, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.connect.records import ConnectRecord

_SCHEMAS: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE,
    "Time": TIME,
    "Timestamp": TIMESTAMP,
}
_PER_MS: Final = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
_LOGICAL: Final = {DATE_NAME: "Date", TIME_NAME: "Time", TIMESTAMP_NAME: "Timestamp"}


class TimestampConverter(FieldTransformation):
    """Changes the type of one timestamp: a field's, or the whole key or value."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions()
        .define(
            "field",
            Type.STRING,
            "",
            "The field containing the timestamp, or empty if the entire value is a timestamp",
            importance=HIGH,
        )
        .define(
            "target.type",
            Type.STRING,
            doc="The desired timestamp representation: string, unix, Date, Time, or Timestamp",
            check=one_of("string", "unix", "Date", "Time", "Timestamp"),
            importance=HIGH,
        )
        .define(
            "format",
            Type.STRING,
            "",
            "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output "
            "when type=string or used to parse the input if the input is a string.",
        )
        .define(
            "unix.precision",
            Type.STRING,
            "milliseconds",
            "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or "
            "nanoseconds. Used to generate the output when type=unix or used to parse the input if "
            "the input is a Long.Note: This SMT will cause precision loss during conversions from, "
            "and to, values with sub-millisecond components.",
            one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
            importance=LOW,
        )
    )
    _purpose: ClassVar[str] = "converting timestamp formats"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._field, self._target = values["field"], values["target.type"]
        self._precision, pattern = values["unix.precision"], values["format"]
        self._format: DateFormat | None = None
        if self._target == "string" and not pattern.strip():
            raise config_error(
                "format",
                "TimestampConverter requires format option to be specified when using string "
                "timestamps",
            )
        if pattern.strip():
            try:
                self._format = DateFormat(pattern)
            except ValueError as error:
                raise config_error(
                    "format",
                    "TimestampConverter requires a SimpleDateFormat-compatible pattern for string "
                    f"timestamps: {pattern}",
                    pattern,
                ) from error

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the changed timestamp."""
        schema, value = self._part(record)
        if schema is None:
            if value is None or not self._field:
                return self._with(record, None, self._convert(value, None))
            given = require_map(value, self._purpose)
            changed = self._convert(given.get(self._field), None)
            return self._with(record, None, {**given, self._field: changed})
        if not self._field:
            target = self._schema(optional=schema.optional)
            return self._with(record, target, self._convert(value, _kind(schema)))
        if value is not None:
            require_struct(value, self._purpose)
        target = self._changed(schema, self._changed_schema)
        return self._with(record, target, self._changed_struct(value, target))

    def _schema(self, *, optional: bool) -> Schema:
        return replace(_SCHEMAS[self._target], optional=optional)

    def _changed_schema(self, schema: Schema) -> Schema:
        fields = (
            (
                it.name,
                self._schema(optional=it.schema.optional) if it.name == self._field else it.schema,
            )
            for it in fields_of(schema)
        )
        made = replace(schema.with_fields(fields), optional=schema.optional)
        if schema.default is None:
            return made
        return made.with_default(self._changed_struct(schema.default, made))

    def _changed_struct(self, value: Struct | None, target: Schema) -> Struct | None:
        if value is None:
            return None
        made = Struct(target)
        for field in value.schema.fields:
            of, new = self._get(value, field), target.fields[field.index]
            if field.name == self._field:
                of = self._convert(of, _kind(field.schema))
                check_value(new.schema, of, field.name)
                made.values[field.index] = of
            else:
                put(made, new, of)
        return made

    def _convert(self, value: Any, kind: str | None) -> Any:
        if value is None:
            return None
        value_ms = self._read(value, kind or _inferred(value))
        if self._target == "string":
            assert self._format is not None
            return self._format.format(value_ms)
        if self._target == "unix":
            return self._unix(value_ms)
        if self._target == "Date":
            return date(value_ms // DAY_MS)
        return time_of_day(value_ms % DAY_MS) if self._target == "Time" else timestamp(value_ms)

    def _read(self, value: Any, kind: str) -> int:
        """Return milliseconds since the epoch."""
        if kind == "string":
            if not isinstance(value, str):
                raise DataException(
                    f"Expected string timestamp to be a String, but found {class_name(value)}"
                )
            if self._format is None:  # a NullPointerException in Kafka
                raise DataException(f"No format is configured to parse the timestamp {value}")
            parsed = self._format.parse(value)
            if parsed is None:
                raise DataException(
                    f"Could not parse timestamp: value ({value}) does not match pattern "
                    f"({self._format.pattern})"
                )
            return parsed
        if kind == "unix":
            if type(value) is not int:
                raise DataException(
                    f"Expected Unix timestamp to be a Long, but found {class_name(value)}"
                )
            if self._precision == "seconds":
                return saturated(value * 1000, 64)
            return _quotient(value, _PER_MS[self._precision])
        if not isinstance(value, dt.date | dt.time):
            raise DataException(
                f"Expected {kind} to be a java.util.Date, but found {class_name(value)}"
            )
        return timestamp_ms(value)

    def _unix(self, value_ms: int) -> int:
        if self._precision == "seconds":
            return _quotient(value_ms, 1000)
        return saturated(value_ms * _PER_MS[self._precision], 64)


def _quotient(number: int, divisor: int) -> int:
    """Divide towards zero, as Java does."""
    quotient = abs(number) // divisor
    return wrapped(quotient if number >= 0 else -quotient, 64)


def _kind(schema: Schema) -> str:
    kind = _LOGICAL.get(schema.name or "")
    if kind is not None:
        return kind
    if schema.type is SchemaType.STRING:
        return "string"
    if schema.type is SchemaType.INT64:
        return "unix"
    raise ConnectException(f"Schema {schema} does not correspond to a known timestamp type format")


def _inferred(value: Any) -> str:
    if isinstance(value, dt.date | dt.time):
        return "Timestamp"
    if type(value) is int:
        return "unix"
    if isinstance(value, str):
        return "string"
    raise DataException(
        f"TimestampConverter does not support {class_name(value)} objects as timestamps"
    )
