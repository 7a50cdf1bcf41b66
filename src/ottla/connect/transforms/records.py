"""Transforms of topics, headers and schemas, those that drop records, and those in Python.

Kafka: org.apache.kafka.connect.transforms.{DropHeaders, Filter, InsertHeader, RegexRouter,
SetSchemaMetadata, TimestampRouter}.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.config.definition import HIGH, ConfigDefinitions, Type
from ottla.config.problems import ConfigErrors, invalid
from ottla.connect.data import Header, Schema, Struct
from ottla.connect.date_format import DateFormat
from ottla.connect.errors import ConnectException, DataException
from ottla.connect.records import ConnectRecord
from ottla.connect.settings import PYTHON_MODULES
from ottla.connect.transforms import (
    FieldTransformation,
    NonNullCheck,
    RegexCheck,
    Transformation,
    changed,
    config_error,
    fields_of,
    fields_setting,
    put,
    with_default_setting,
)
from ottla.connect.values import parse_string
from ottla.security.java_regex import compile_java, replace_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Filter(Transformation):
    """Drops every record; a predicate chooses which."""

    def apply(self, record: ConnectRecord) -> None:
        """Drop the record."""


class DropHeaders(Transformation):
    """Removes headers by name."""

    definitions: ClassVar[ConfigDefinitions] = fields_setting(
        "headers", "The name of the headers to be removed."
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._names = frozenset(values["headers"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the other headers."""
        kept = tuple(it for it in record.headers if it.key not in self._names)
        return changed(record, headers=kept)


class InsertHeader(Transformation):
    """Adds a header with a value that a text stands for, as `5` or `[1,2]`."""

    definitions: ClassVar[ConfigDefinitions] = (
        ConfigDefinitions()
        .define(
            "header",
            Type.STRING,
            doc="The name of the header.",
            check=NonNullCheck(),
            importance=HIGH,
        )
        .define(
            "value.literal",
            Type.STRING,
            doc="The literal value that is to be set as the header value on all records.",
            check=NonNullCheck(),
            importance=HIGH,
        )
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._header = Header(values["header"], *parse_string(values["value.literal"]))

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the header."""
        return changed(record, headers=(*record.headers, self._header))


class RegexRouter(Transformation):
    """Renames the topics that a regular expression matches as a whole."""

    definitions: ClassVar[ConfigDefinitions] = (
        ConfigDefinitions()
        .define(
            "regex",
            Type.STRING,
            doc="Regular expression to use for matching.",
            check=RegexCheck(),
            importance=HIGH,
        )
        .define("replacement", Type.STRING, doc="Replacement string.", importance=HIGH)
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._pattern = compile_java(values["regex"])
        self._replacement = values["replacement"]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with its new topic; ValueError where the replacement has no group."""
        if self._pattern.fullmatch(record.topic) is None:
            return record
        topic = replace_all(self._pattern, self._replacement, record.topic, only_first=True)
        return changed(record, topic=topic)


class TimestampRouter(Transformation):
    """Names the topic by the old name and the timestamp of the record."""

    definitions: ClassVar[ConfigDefinitions] = (
        ConfigDefinitions()
        .define(
            "topic.format",
            Type.STRING,
            "${topic}-${timestamp}",
            "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> "
            "as placeholders for the topic and timestamp, respectively.",
            importance=HIGH,
        )
        .define(
            "timestamp.format",
            Type.STRING,
            "yyyyMMdd",
            "Format string for the timestamp that is compatible with "
            "<code>java.text.SimpleDateFormat</code>.",
            importance=HIGH,
        )
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        self._topic = values["topic.format"]
        try:
            self._format = DateFormat(values["timestamp.format"])
        except ValueError as error:  # Kafka finds it at the first record
            given = values["timestamp.format"]
            raise ConfigErrors([invalid("timestamp.format", given, str(error))]) from error

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with its new topic; DataException without a timestamp."""
        if record.timestamp_ms is None:
            location = f"topic='{record.topic}', kafkaPartition={record.partition}"
            raise DataException(f"Timestamp missing on record: ConnectRecord{{{location}}}")
        shown = self._format.format(record.timestamp_ms)
        topic = self._topic.replace("${topic}", record.topic).replace("${timestamp}", shown)
        return changed(record, topic=topic)


class SetSchemaMetadata(FieldTransformation):
    """Sets the name and the version of a schema."""

    definitions: ClassVar[ConfigDefinitions] = with_default_setting(
        ConfigDefinitions()
        .define("schema.name", Type.STRING, None, "Schema name to set.", importance=HIGH)
        .define("schema.version", Type.INT, None, "Schema version to set.", importance=HIGH)
    )

    def _use(self, values: Mapping[str, Any]) -> None:
        super()._use(values)
        self._name, self._version = values["schema.name"], values["schema.version"]
        if self._name is None and self._version is None:
            raise config_error("schema.name", "Neither schema name nor version configured")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the schema; one without schema and value stays as it is."""
        schema, value = self._part(record)
        if schema is None:
            if value is None:
                return record
            raise DataException("Schema required for [updating schema metadata]")
        fields_of(schema)  # which Kafka reads, whatever the value is
        target = self._changed(schema, self._renamed)
        if not isinstance(value, Struct):
            return self._with(record, target, value)
        made = Struct(target)
        for field in target.fields:
            put(made, field, self._get(value, field))
        return self._with(record, target, made)

    def _renamed(self, schema: Schema) -> Schema:
        return replace(
            schema,
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
        )


class _AllowedFunction:
    """A function of a module that the worker allows, or of one below it."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules

    def reason(self, _name: str, value: object) -> str | None:
        module = str(value or "").rpartition(".")[0]
        if any(module == it or module.startswith(f"{it}.") for it in self._modules):
            return None
        return f"is of no module that the worker's {PYTHON_MODULES} lists"


def _python_settings(modules: tuple[str, ...]) -> ConfigDefinitions:
    return ConfigDefinitions().define(
        "function",
        Type.STRING,
        doc="Dotted path of a function that takes a record and returns one, or None to drop it.",
        check=_AllowedFunction(modules),
        importance=HIGH,
    )


class Python(Transformation):
    """Calls a function of a Python module with each record: `package.module.function`.

    The name comes from the connector's configuration only, and is imported when the task starts.
    Whoever may configure connectors would run any function of the machine: the worker's file says
    which modules they may name.
    """

    definitions: ClassVar[ConfigDefinitions] = _python_settings(())

    def __init__(self, modules: tuple[str, ...]) -> None:
        """Take the modules that the worker allows."""
        super().__init__()
        self.definitions = _python_settings(modules)  # type: ignore[misc] # each worker's own

    def _use(self, values: Mapping[str, Any]) -> None:
        self._function = _function(values["function"])

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return what the function returns; ConnectException for anything but a record."""
        made = self._function(record)
        if made is not None and not isinstance(made, ConnectRecord):
            kind = type(made).__name__
            raise ConnectException(f"The function of a Python transform returned a {kind}")
        return made


def _function(path: str) -> Callable[[ConnectRecord], object]:
    """Import a function; ConfigErrors where there is none."""
    module, _, name = path.rpartition(".")
    try:
        # Some modules of the standard library run when they are imported
        if not module or module.partition(".")[0] in sys.stdlib_module_names:
            raise ImportError("it is no function of an installed package")
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = f"cannot be imported ({error})"
        raise ConfigErrors([invalid("function", path, reason)]) from error
    if not callable(found):
        raise ConfigErrors([invalid("function", path, "is not a function")])
    return found  # type: ignore[no-any-return] # callable
