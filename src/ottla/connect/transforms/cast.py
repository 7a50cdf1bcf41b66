"""Changes the types of fields, or of whole keys and values.

Kafka: org.apache.kafka.connect.transforms.Cast.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.definition import HIGH, ConfigDefinitions, Type
from ottla.config.problems import ConfigErrors, invalid
from ottla.connect.data import (
    BOUNDS,
    DATE_NAME,
    DAY_MS,
    TIME_NAME,
    TIMESTAMP_NAME,
    Schema,
    SchemaType,
    Struct,
    check_value,
    timestamp_ms,
)
from ottla.connect.errors import DataException
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
from ottla.connect.values import (
    display_text,
    float32,
    moment_text,
    nearest_double,
    saturated,
    truncated,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.connect.records import ConnectRecord

_OUTPUTS: Final = (
    *(SchemaType.INT8, SchemaType.INT16, SchemaType.INT32, SchemaType.INT64),
    *(SchemaType.FLOAT32, SchemaType.FLOAT64, SchemaType.BOOLEAN, SchemaType.STRING),
)
_INPUTS: Final = (*_OUTPUTS, SchemaType.BYTES)
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}")
_FLOAT: Final = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?)", re.ASCII
)
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's trim takes away."""


def _casts(spec: tuple[str, ...]) -> dict[str | None, SchemaType]:
    """Return the types by field, of the whole value by None; ConfigErrors for others."""
    casts: dict[str | None, SchemaType] = {}
    for entry in spec:
        parts = entry.rstrip(":").split(":")
        if len(parts) > 2:
            shown = f"[{', '.join(spec)}]"
            raise ConfigErrors([invalid("renames", shown, f"Invalid rename mapping: {entry}")])
        name = parts[-1].strip(_BLANKS)
        try:
            target = SchemaType[name.upper()]
        except KeyError:
            raise config_error("spec", f"Invalid type found in casting spec: {name}") from None
        if target not in _OUTPUTS:
            raise config_error(
                "spec",
                f"Cast transformation does not support casting to {target.name}; "
                f"supported types are {_listed(_OUTPUTS)}",
            )
        casts[parts[0].strip(_BLANKS) if len(parts) == 2 else None] = target
    if None in casts and len(spec) > 1:
        raise config_error(
            "spec",
            "Cast transformations that specify a type to cast the entire value to may only specify "
            "a single cast in their spec",
        )
    return casts


def _listed(types: tuple[SchemaType, ...]) -> str:
    return f"[{', '.join(it.name for it in types)}]"


class _SpecCheck:
    """Pairs `field:type`, or one type."""

    def reason(self, _name: str, value: object) -> str | None:
        """Parse them."""
        if not value:
            raise config_error("spec", "Must specify at least one field to cast.")
        assert isinstance(value, tuple)
        _casts(value)
        return None


class Cast(FieldTransformation):
    """Changes types: of numbers, booleans and texts to one another, of bytes to text."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions().define(
            "spec",
            Type.LIST,
            doc="List of fields and the type to cast them to of the form field1:type,field2:type "
            "to cast fields of Maps or Structs. A single type to cast the entire value. Valid "
            "types are int8, int16, int32, int64, float32, float64, boolean, and string. Note that "
            "binary fields can only be cast to string.",
            check=_SpecCheck(),
            importance=HIGH,
        )
    )
    _purpose: ClassVar[str] = "cast types"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._casts = _casts(values["spec"])
        self._whole = self._casts.get(None)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with other types; a record without a value stays as it is."""
        schema, value = self._part(record)
        if value is None:
            return record
        if schema is None:
            if self._whole is not None:
                return self._with(record, None, _cast(None, value, self._whole))
            given = require_map(value, self._purpose)
            changed = {
                name: _cast(None, given.get(name), target)  # type: ignore[arg-type] # no None
                for name, target in self._casts.items()
            }
            return self._with(record, None, {**given, **changed})
        target_schema = self._changed(schema, self._cast_schema)
        if self._whole is not None:
            return self._with(record, target_schema, _cast(schema, value, self._whole))
        source = require_struct(value, self._purpose)
        made = Struct(target_schema)
        for field in source.schema.fields:
            of = self._get(source, field)
            target = self._casts.get(field.name)
            new = target_schema.fields[field.index]
            if target is None:
                put(made, new, of)
            else:
                cast = _cast(field.schema, of, target)
                check_value(new.schema, cast, field.name)
                made.values[field.index] = cast
        return self._with(record, target_schema, made)

    def _cast_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            made = Schema(
                self._whole,
                schema.optional,
                None,
                schema.name,
                schema.version,
                schema.doc,
                schema.parameters,
            )
        else:
            fields = ((it.name, self._cast_field(it.name, it.schema)) for it in fields_of(schema))
            made = replace(schema.with_fields(fields), optional=schema.optional)
        return _with_default_of(schema, made)

    def _cast_field(self, name: str, schema: Schema) -> Schema:
        target = self._casts.get(name)
        if target is None:
            return schema
        return _with_default_of(schema, Schema(target, optional=schema.optional))


def _with_default_of(schema: Schema, made: Schema) -> Schema:
    """Return a cast schema with the default of the original one, which is cast, too."""
    if schema.default is None:
        return made
    return made.with_default(_cast(schema, schema.default, made.type))


def _cast(schema: Schema | None, value: Any, target: SchemaType) -> Any:  # noqa: C901, PLR0911 - a branch a type
    if value is None:
        return None
    kind = _inferred(value) if schema is None else schema.type
    if kind not in _INPUTS:
        raise DataException(
            f"Cast transformation does not support casting from {kind.name}; "
            f"supported types are {_listed(_INPUTS)}"
        )
    if target is SchemaType.STRING:
        return _to_string(schema, value)
    if schema is not None and isinstance(value, dt.date | dt.time):
        value_ms = timestamp_ms(value)
        if schema.name in {DATE_NAME, TIME_NAME, TIMESTAMP_NAME}:
            value = value_ms // DAY_MS if schema.name == DATE_NAME else value_ms
    if not isinstance(value, int | float | Decimal | str):
        raise DataException(f"Unexpected type in Cast transformation: {class_name(value)}")
    if target is SchemaType.BOOLEAN:
        if isinstance(value, str):
            return value.lower() == "true"
        return value if isinstance(value, bool) else truncated(value) != 0
    if target is SchemaType.FLOAT64:
        return _to_float(value)
    if target is SchemaType.FLOAT32:
        return float32(_to_float(value))
    return _to_integer(value, target)


def _inferred(value: Any) -> SchemaType:
    for kind, type_ in _INFERRED:
        if isinstance(value, kind):
            return type_
    raise DataException(
        f"Cast transformation was passed a value of type {class_name(value)} which is not "
        "supported by Connect's data API"
    )


_INFERRED: Final[tuple[tuple[Any, SchemaType], ...]] = (
    (bool, SchemaType.BOOLEAN),
    (int, SchemaType.INT64),
    (float, SchemaType.FLOAT64),
    (str, SchemaType.STRING),
    (bytes | bytearray | memoryview, SchemaType.BYTES),
    (list | tuple, SchemaType.ARRAY),
    (dict, SchemaType.MAP),
    (Struct, SchemaType.STRUCT),
)


def _to_string(schema: Schema | None, value: Any) -> str:
    if isinstance(value, dt.date | dt.time):
        return moment_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return display_text(value, schema)


def _out_of_range(text: str) -> DataException:
    return DataException(f"Value ({text}) was out of range for requested data type")


def _to_integer(value: Any, target: SchemaType) -> int:
    bound = BOUNDS[target]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        number = int(value) if _INTEGER.fullmatch(value) else None
        if number is None or not -bound <= number < bound:
            raise _out_of_range(value)
        return number
    bits = bound.bit_length()
    if isinstance(value, float):
        # Java converts to 32 bits first, where too large numbers become the largest one
        return wrapped(saturated(value, max(bits, 32)), bits)
    return wrapped(truncated(value), bits)


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        match = _FLOAT.fullmatch(value.strip(_BLANKS))
        if match is None:
            raise _out_of_range(value)
        sign, nan, infinity, digits = match.groups()
        return float(sign + (digits or nan or infinity))
    return nearest_double(value)
