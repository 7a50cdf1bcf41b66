"""Transforms of the fields of keys and values.

Kafka: org.apache.kafka.connect.transforms.{ExtractField, Flatten, HeaderFrom, HoistField,
InsertField, MaskField, ReplaceField, ValueToKey}.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ottla.config.checks import DISTINCT, NON_EMPTY, one_of, one_of_any_case
from ottla.config.definition import HIGH, LOW, ConfigDefinitions, Type
from ottla.config.problems import ConfigErrors, invalid
from ottla.connect.data import (
    BOUNDS,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Header,
    Schema,
    SchemaType,
    Struct,
    check_value,
    date,
    struct_of,
    time_of_day,
    timestamp,
)
from ottla.connect.errors import DataException
from ottla.connect.field_path import FieldPath
from ottla.connect.records import SinkRecord
from ottla.connect.transforms import (
    FieldTransformation,
    NonEmptyListCheck,
    Transformation,
    changed,
    class_name,
    config_error,
    fields_setting,
    put,
    require_map,
    require_struct,
    with_default_setting,
)
from ottla.connect.values import as_double, as_long, float32, parse_decimal, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.connect.records import ConnectRecord


class ExtractField(FieldTransformation):
    """Replaces a key or a value by one of its fields; None stays None."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions().define("field", Type.STRING, doc="Field name to extract.")
    ).define(
        "field.syntax.version",
        Type.STRING,
        "V1",
        "Defines the version of the syntax to access fields. If set to <code>V1</code>, then the "
        "field paths are limited to access the elements at the root level of the struct or map. If "
        "set to <code>V2</code>, the syntax will support accessing nested elements. To access "
        "nested elements, dotted notation is used. If dots are already included in the field name, "
        "then backtick pairs can be used to wrap field names containing dots. E.g. to access the "
        'subfield <code>baz</code> from a field named "foo.bar" in a struct/map the following '
        'format can be used to access its elements: "<code>foo.bar</code>.baz".',
        one_of_any_case("V1", "V2"),
        importance=HIGH,
    )
    _purpose: ClassVar[str] = "field extraction"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._name = values["field"]
        is_nested = values["field.syntax.version"].upper() == "V2"
        self._path = FieldPath(self._name, is_nested=is_nested)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the field's value and schema."""
        schema, value = self._part(record)
        if schema is None:
            found = None
            if value is not None:
                found = self._path.in_map(require_map(value, self._purpose))
            return self._with(record, None, found)
        if value is not None:
            require_struct(value, self._purpose)
        field = self._path.in_schema(schema)
        if field is None:
            raise ValueError(f"Unknown field: {self._name}")
        found = None
        if value is not None:
            found = self._path.in_struct(value, with_default=self.with_defaults)
        return self._with(record, field.schema, found)


class HoistField(Transformation):
    """Wraps a key or a value: it becomes the only field of a struct or a dict."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions().define(
        "field",
        Type.STRING,
        doc="Field name for the single field that will be created in the resulting Struct or Map.",
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._name = values["field"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the struct."""
        schema, value = self._part(record)
        if schema is None:
            return self._with(record, None, {self._name: value})
        wrapper = self._changed(schema, lambda of: struct_of([(self._name, of)]))
        made = Struct(wrapper)
        made[self._name] = value
        return self._with(record, wrapper, made)


class _Insertion(NamedTuple):
    name: str
    schema: Schema


_OPTIONALITY: Final = (
    "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it "
    "optional (the default)."
)


class InsertField(FieldTransformation):
    """Adds the topic, the partition, the offset, the timestamp or a fixed text as fields."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions()
        .define("topic.field", Type.STRING, None, f"Field name for Kafka topic. {_OPTIONALITY}")
        .define(
            "partition.field", Type.STRING, None, f"Field name for Kafka partition. {_OPTIONALITY}"
        )
        .define(
            "offset.field",
            Type.STRING,
            None,
            "Field name for Kafka offset - only applicable to sink connectors.<br/>" + _OPTIONALITY,
        )
        .define(
            "timestamp.field", Type.STRING, None, f"Field name for record timestamp. {_OPTIONALITY}"
        )
        .define(
            "static.field", Type.STRING, None, f"Field name for static data field. {_OPTIONALITY}"
        )
        .define("static.value", Type.STRING, None, "Static field value, if field name configured.")
    )
    _purpose: ClassVar[str] = "field insertion"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._insertions: dict[str, _Insertion] = {}
        for kind, schema in _INSERTED.items():
            text = values[f"{kind}.field"]
            if text is not None:
                required = text.endswith("!")
                name = text[:-1] if text.endswith(("!", "?")) else text
                self._insertions[kind] = _Insertion(
                    name, schema if required else schema.as_optional()
                )
        self._static = values["static.value"]
        if not self._insertions:
            raise config_error("topic.field", "No field insertion configured")
        if "static" in self._insertions and self._static is None:
            name = self._insertions["static"].name
            raise ConfigErrors(
                [invalid("static.value", None, f"No value specified for static field: {name}")]
            )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the fields; a record without a value stays as it is."""
        schema, value = self._part(record)
        if value is None:
            return record
        if schema is None:
            extended = {**require_map(value, self._purpose)}
            extended.update(self._inserted(record, is_logical=False))
            return self._with(record, None, extended)
        source = require_struct(value, self._purpose)
        target = self._changed(source.schema, self._extended)
        made = Struct(target)
        for field in source.schema.fields:
            put(made, field, self._get(source, field))
        for name, inserted in self._inserted(record, is_logical=True):
            made[name] = inserted
        return self._with(record, target, made)

    def _extended(self, schema: Schema) -> Schema:
        kept = [(it.name, it.schema) for it in schema.fields]
        return schema.with_fields([*kept, *self._insertions.values()])

    def _inserted(self, record: ConnectRecord, *, is_logical: bool) -> Iterator[tuple[str, Any]]:
        """Yield the values that the record has."""
        for kind, (name, _) in self._insertions.items():
            if kind == "topic":
                yield name, record.topic
            elif kind == "partition" and record.partition is not None:
                yield name, record.partition
            elif kind == "offset":
                if not isinstance(record, SinkRecord):
                    raise DataException(
                        f"Only SinkRecord supported for [{self._purpose}], "
                        f"found: {class_name(record)}"
                    )
                yield name, record.offset
            elif kind == "timestamp" and record.timestamp_ms is not None:
                at_ms = record.timestamp_ms
                yield name, timestamp(at_ms) if is_logical else at_ms
            elif kind == "static":
                yield name, self._static


_INSERTED: Final = {
    "topic": STRING,
    "partition": INT32,
    "offset": INT64,
    "timestamp": TIMESTAMP,
    "static": STRING,
}


class MaskField(FieldTransformation):
    """Replaces the values of fields by zero, the empty text and the like, or by a fixed value."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        fields_setting("fields", "Names of fields to mask.").define(
            "replacement",
            Type.STRING,
            None,
            "Custom value replacement, that will be applied to all 'fields' values (numeric or "
            "non-empty string values only).",
            NON_EMPTY,
            importance=LOW,
        )
    )
    _purpose: ClassVar[str] = "mask fields"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._names = values["fields"]
        self._replacement = values["replacement"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the masked fields."""
        schema, value = self._part(record)
        if schema is None:
            given = require_map(value, self._purpose)
            masked = {name: self._masked(given.get(name), None) for name in self._names}
            return self._with(record, None, {**given, **masked})
        source = require_struct(value, self._purpose)
        made = Struct(source.schema)
        for field in source.schema.fields:
            of = self._get(source, field)
            if field.name in self._names:
                made[field.name] = self._masked(of, field.schema)
            else:
                put(made, field, of)
        return self._with(record, schema, made)

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        if self._replacement is not None:
            return _replaced(value, schema, self._replacement)
        if isinstance(value, dt.date | dt.time):
            if isinstance(value, dt.datetime):
                return timestamp(0)
            return date(0) if isinstance(value, dt.date) else time_of_day(0)
        for kind, mask in _MASKS.items():
            if isinstance(value, kind):
                return mask() if callable(mask) else mask
        raise DataException(f"Cannot mask value of type: {class_name(value)}")


_MASKS: Final[dict[Any, Any]] = {
    bool: False,
    int: 0,
    float: 0.0,
    Decimal: Decimal(0),
    str: "",
    list: list,
    dict: dict,
}


def _replaced(value: Any, schema: Schema | None, text: str) -> Any:
    """Return the replacement as a value of the same type."""
    kind = type(value)
    if kind is str:
        return text
    if kind is int:
        bits = 64 if schema is None else BOUNDS[schema.type].bit_length()
        return wrapped(as_long(text), bits)
    if kind is float:
        number = as_double(text)
        is_single = schema is not None and schema.type is SchemaType.FLOAT32
        return float32(number) if is_single else number
    if kind is Decimal:
        exact = parse_decimal(text)
        if exact is None:
            raise DataException(f"Unable to convert {text} (str) to number")
        return exact
    raise DataException(f"Cannot mask value of type {kind.__name__} with custom replacement.")


class _RenamesCheck:
    """Pairs `old:new`."""

    def reason(self, _name: str, value: object) -> str | None:
        """Split each pair."""
        assert isinstance(value, tuple)
        _renames(value)
        return None


def _renames(pairs: tuple[str, ...]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        parts = pair.rstrip(":").split(":")  # as Java's split, which drops empty texts at the end
        if len(parts) != 2:
            shown = f"[{', '.join(pairs)}]"
            reason = f"Invalid rename mapping: {pair}"
            raise ConfigErrors([invalid("renames", shown, reason)])
        renames[parts[0]] = parts[1]
    return renames


class ReplaceField(FieldTransformation):
    """Drops and renames fields."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions()
        .define(
            "exclude",
            Type.LIST,
            (),
            "Fields to exclude. This takes precedence over the fields to include.",
            DISTINCT,
        )
        .define(
            "include",
            Type.LIST,
            (),
            "Fields to include. If specified, only these fields will be used.",
            DISTINCT,
        )
        .define("renames", Type.LIST, (), "Field rename mappings.", _RenamesCheck())
    )
    _purpose: ClassVar[str] = "field replacement"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._exclude = frozenset(values["exclude"])
        self._include = frozenset(values["include"])
        self._renames = _renames(values["renames"])
        self._origins = {new: old for old, new in self._renames.items()}

    def _is_kept(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the fields that stay."""
        schema, value = self._part(record)
        if value is None:
            return record
        if schema is None:
            given = require_map(value, self._purpose)
            kept = {self._renames.get(n, n): it for n, it in given.items() if self._is_kept(n)}
            return self._with(record, None, kept)
        source = require_struct(value, self._purpose)
        target = self._changed(source.schema, self._replaced)
        made = Struct(target)
        for field in target.fields:
            origin = self._origins.get(field.name, field.name)
            known = source.schema.field(origin)
            if known is None:
                raise DataException(f"{origin} is not a valid field name")
            of = self._get(source, known)
            if known.schema is field.schema:
                put(made, field, of)
            else:  # two fields whose names were exchanged
                check_value(field.schema, of, field.name)
                made.values[field.index] = of
        return self._with(record, target, made)

    def _replaced(self, schema: Schema) -> Schema:
        kept = (it for it in schema.fields if self._is_kept(it.name))
        return schema.with_fields((self._renames.get(it.name, it.name), it.schema) for it in kept)


class ValueToKey(FieldTransformation):
    """Makes a key of some fields of the value."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        fields_setting("fields", "Field names on the record value to extract as the record key.")
    )
    _purpose: ClassVar[str] = "copying fields from value to key"

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._names = values["fields"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with its new key."""
        if record.value_schema is None:
            value = require_map(record.value, self._purpose)
            named = {name: value.get(name) for name in self._names}
            return changed(record, key_schema=None, key=named)
        source = require_struct(record.value, self._purpose)
        schema = self._changed(source.schema, self._key_schema)
        key = self._select(source, schema)
        return changed(record, key_schema=schema, key=key, value_schema=source.schema)

    def _key_schema(self, schema: Schema) -> Schema:
        named = []
        for name in self._names:
            field = schema.field(name)
            if field is None:
                raise DataException(f"Field does not exist: {name}")
            named.append((name, field.schema))
        return struct_of(named)


class HeaderFrom(FieldTransformation):
    """Moves or copies fields to headers."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions()
        .define(
            "fields",
            Type.LIST,
            doc="Field names in the record whose values are to be copied or moved to headers.",
            check=NonEmptyListCheck(),
            importance=HIGH,
        )
        .define(
            "headers",
            Type.LIST,
            doc="Header names, in the same order as the field names listed in the fields "
            "configuration property.",
            check=NonEmptyListCheck(),
            importance=HIGH,
        )
        .define(
            "operation",
            Type.STRING,
            doc="Either <code>move</code> if the fields are to be moved to the headers (removed "
            "from the key/value), or <code>copy</code> if the fields are to be copied to the "
            "headers (retained in the key/value).",
            check=one_of("move", "copy"),
            importance=HIGH,
        )
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._names, self._headers = values["fields"], values["headers"]
        self._moves = values["operation"] == "move"
        self._purpose = f"header {values['operation']}"
        if len(self._names) != len(self._headers):
            raise config_error(
                "fields",
                "'fields' config must have the same number of elements as 'headers' config.",
            )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with more headers, and fewer fields if they move."""
        schema, value = self._part(record)
        if schema is None:
            given = require_map(value, self._purpose)
            added = zip(self._names, self._headers, strict=True)
            headers = [Header(header, None, given.get(name)) for name, header in added]
            gone = self._names if self._moves else ()
            rest = {name: it for name, it in given.items() if name not in gone}
            made_record = self._with(record, None, rest)
        else:
            source = require_struct(value, self._purpose)
            made = source
            if self._moves:
                schema = self._changed(schema, self._reduced)
                made = self._select(source, schema)
            headers = list(self._new_headers(source))
            made_record = self._with(record, schema, made)
        made_record.headers = (*record.headers, *headers)
        return made_record

    def _reduced(self, schema: Schema) -> Schema:
        kept = (it for it in schema.fields if it.name not in self._names)
        return schema.with_fields((it.name, it.schema) for it in kept)

    def _new_headers(self, source: Struct) -> Iterator[Header]:
        for name, header in zip(self._names, self._headers, strict=True):
            field = source.schema.field(name)
            if field is None:  # a NullPointerException in Kafka
                raise DataException(f"Field does not exist: {name}")
            of = self._get(source, field)
            if of is None and not field.schema.optional:
                raise DataException(
                    f"A null value requires an optional schema but was {field.schema}"
                )
            yield Header(header, field.schema, of)


class Flatten(Transformation):
    """Makes one level of nested structs or dicts, with names like `a.b`; lists stay."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions().define(
        "delimiter",
        Type.STRING,
        ".",
        "Delimiter to insert between field names from the input record when generating field names "
        "for the output record",
    )
    _purpose: ClassVar[str] = "flattening"

    def _use(self, values: Mapping[str, Any]) -> None:
        self._delimiter = values["delimiter"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the flat struct or dict; one without a value stays as it is."""
        schema, value = self._part(record)
        if value is None:
            return record
        if schema is None:
            flat: dict[str, Any] = {}
            self._flatten(require_map(value, self._purpose), "", flat)
            return self._with(record, None, flat)
        source = require_struct(value, self._purpose)
        target = self._changed(schema, self._flat_schema)
        made = Struct(target)
        self._fill(source, "", made)
        return self._with(record, target, made)

    def _named(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flatten(self, given: dict[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for key, value in given.items():
            name = self._named(prefix, key)
            if isinstance(value, dict):
                self._flatten(value, name, flat)
            elif isinstance(value, Struct):
                raise DataException(
                    f"Flatten transformation does not support {class_name(value)} for record "
                    f"without schemas (for field {name})."
                )
            elif value is None or isinstance(value, _FLAT):
                flat[name] = value
            else:
                raise DataException(
                    f"Flatten transformation was passed a value of type {class_name(value)} which "
                    "is not supported by Connect's data API"
                )

    def _flat_schema(self, schema: Schema) -> Schema:
        fields = self._flat_fields(schema, "", schema.default, optional=schema.optional)
        return schema.with_fields(fields)

    def _flat_fields(
        self, schema: Schema, prefix: str, default: Struct | None, *, optional: bool
    ) -> Iterator[tuple[str, Schema]]:
        for field in schema.fields:
            name, of = self._named(prefix, field.name), field.schema
            inherited = of.default
            if inherited is None and default is not None:
                inherited = default[field.name]
            is_optional = optional or of.optional
            if of.type is SchemaType.STRUCT:
                yield from self._flat_fields(of, name, inherited, optional=is_optional)
            elif of.type is SchemaType.MAP:
                raise DataException(
                    "Flatten transformation does not support MAP for record with schemas (for "
                    f"field {name})."
                )
            else:
                flat = replace(of, optional=is_optional, default=None)
                yield name, flat if inherited is None else flat.with_default(inherited)

    def _fill(self, source: Struct | None, prefix: str, made: Struct) -> None:
        if source is None:
            return
        for field in source.schema.fields:
            name = self._named(prefix, field.name)
            if field.schema.type is SchemaType.STRUCT:
                self._fill(source.values[field.index], name, made)
            else:
                target = made.schema.field(name)
                assert target is not None
                put(made, target, source[field.name])


_FLAT: Final = (bool, int, float, str, bytes, bytearray, memoryview, list, tuple)
