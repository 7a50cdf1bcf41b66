"""Transforms: what happens to each record between connector and topic.

Kafka: org.apache.kafka.connect.transforms.{Transformation, util.Requirements}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.checks import DISTINCT_NON_EMPTY
from ottla.config.definition import HIGH, ConfigDefinitions, Type
from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.connect import PLUGIN_VERSION
from ottla.connect.data import Field, Schema, SchemaType, Struct, check_value
from ottla.connect.errors import DataException
from ottla.security.java_regex import compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.connect.records import ConnectRecord

_CACHED: Final = 16
"""Schemas that a transform keeps the changed form of, as in Kafka."""


class Transformation(ABC):
    """Changes or drops records; an instance serves one task."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()

    def __init__(self, *, of_key: bool = False) -> None:
        """Work on keys or on values, if it works on one of them."""
        self.of_key = of_key
        self._schemas: dict[Schema, Schema] = {}

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take settings; ConfigErrors for invalid ones."""
        self._use(self.definitions.parse(settings))

    def _use(self, values: Mapping[str, Any]) -> None:  # noqa: B027 - a branch a type
        """Take parsed settings."""

    @abstractmethod
    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return the record that goes on, None to drop it; may raise what it cannot transform."""

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what `configure` took."""

    # -------------------------------------------------------- the key or the value

    def _part(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        if self.of_key:
            return record.key_schema, record.key
        return record.value_schema, record.value

    def _with(self, record: ConnectRecord, schema: Schema | None, value: Any) -> ConnectRecord:
        """Return the record with another key or value."""
        if self.of_key:
            return changed(record, key_schema=schema, key=value)
        return changed(record, value_schema=schema, value=value)

    def _changed(self, schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
        """Return the changed form of a schema, which is made once."""
        known = self._schemas.get(schema)
        if known is None:
            known = change(schema)
            if len(self._schemas) >= _CACHED:
                self._schemas.clear()
            self._schemas[schema] = known
        return known


class FieldTransformation(Transformation):
    """A transform that reads fields, whose unset ones may stand for their default."""

    with_defaults = True

    def _use(self, values: Mapping[str, Any]) -> None:
        self.with_defaults = values["replace.null.with.default"]

    def _get(self, value: Struct, field: Field) -> Any:
        stored = value.values[field.index]
        return field.schema.default if stored is None and self.with_defaults else stored

    def _select(self, source: Struct, schema: Schema) -> Struct:
        """Return the fields of a struct that another schema has, too."""
        made = Struct(schema)
        for field in schema.fields:
            origin = source.schema.field(field.name)
            assert origin is not None
            put(made, field, self._get(source, origin))
        return made


def with_default_setting(definitions: ConfigDefinitions) -> ConfigDefinitions:
    """Add the setting of `FieldTransformation`."""
    return definitions.define(
        "replace.null.with.default",
        Type.BOOLEAN,
        True,
        "Whether to replace fields that have a default value and that are null to the default "
        "value. When set to true, the default value is used, otherwise null is used.",
    )


def fields_setting(name: str, doc: str) -> ConfigDefinitions:
    """Return a required list of different names."""
    return ConfigDefinitions().define(
        name, Type.LIST, doc=doc, check=DISTINCT_NON_EMPTY, importance=HIGH
    )


def changed(record: ConnectRecord, **values: Any) -> ConnectRecord:
    """Return a copy with other values, as dataclasses.replace in a third of its time."""
    kind = type(record)
    made = object.__new__(kind)
    for name in kind.__dataclass_fields__:
        setattr(made, name, values[name] if name in values else getattr(record, name))
    return made


def put(made: Struct, field: Field, value: Any) -> None:
    """Set a field to a value that fitted the same schema before; DataException for None."""
    if value is None and not field.schema.optional:
        check_value(field.schema, None, field.name)
    made.values[field.index] = value


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a value without a schema; DataException unless it is a dict."""
    if isinstance(value, dict):
        return value
    raise DataException(
        f"Only Map objects supported in absence of schema for [{purpose}], "
        f"found: {class_name(value)}"
    )


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value with a schema; DataException unless it is a Struct."""
    if isinstance(value, Struct):
        return value
    raise DataException(
        f"Only Struct objects supported for [{purpose}], found: {class_name(value)}"
    )


def fields_of(schema: Schema) -> tuple[Field, ...]:
    """Return the fields of a schema; DataException unless it is a struct's."""
    if schema.type is SchemaType.STRUCT:
        return schema.fields
    raise DataException("Cannot list fields on non-struct type")


def class_name(value: Any) -> str:
    """Return the name of a value's class, "null" for None."""
    return "null" if value is None else type(value).__name__


def config_error(name: str, message: str, value: str | None = None) -> ConfigErrors:
    """Return a problem of a configuration whose message is complete."""
    return ConfigErrors([ConfigProblem(name, value, message)])


class RegexCheck:
    """A regular expression in Java's syntax."""

    def reason(self, _name: str, value: object) -> str | None:
        """Compile it."""
        try:
            compile_java(str(value))
        except ValueError as error:
            return f"Invalid regex: {error}"
        return None


class NonEmptyListCheck:
    """A list with at least one entry."""

    def reason(self, _name: str, value: object) -> str | None:
        """Look at its size."""
        return None if value else "Empty list"


class NonNullCheck:
    """Anything but null."""

    def reason(self, _name: str, value: object) -> str | None:
        """Look for a value."""
        return "entry must be non null" if value is None else None
