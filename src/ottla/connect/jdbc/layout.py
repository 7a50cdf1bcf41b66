"""Which columns the records of a topic have, and where in a record their values are.

Kafka: Confluent's io.confluent.connect.jdbc.sink.{PreparedStatementBinder, metadata.FieldsMetadata,
TableAlterOrCreateUtils}.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.connect import data
from ottla.connect.data import SchemaType, Struct
from ottla.connect.errors import ConnectException
from ottla.connect.jdbc.database import TableId, logical_type, split_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.data import Schema
    from ottla.connect.jdbc.database import Database
    from ottla.connect.records import SinkRecord

log = logging.getLogger("ottla.connect.jdbc")
_KNOWN_MAX: Final = 1000
"""Layouts that are remembered: schemas that change with each record fill no memory."""
_COORDINATES: Final = ("__connect_topic", "__connect_partition", "__connect_offset")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, and its values in records."""

    name: str
    schema: Schema
    part: str
    """key or value, or kafka for the record's coordinates in its topic."""
    index: int
    """The position among the fields; -1 is the whole key."""
    convert: Callable[[Any], Any] | None


class RowLayout:
    """The columns of records that have the same topic and schemas."""

    def __init__(self, table: TableId, keys: Sequence[Column], others: Sequence[Column]) -> None:
        """Take the primary key's columns and the others."""
        self.table = table
        self.keys, self.others = tuple(keys), tuple(others)
        self.columns = (*keys, *others)
        self.names = [it.name for it in self.columns]
        self.key_names = [it.name for it in keys]
        special = [it.convert is not None or it.schema.default is not None for it in self.columns]
        self._special = [
            (index, column) for index, column in enumerate(self.columns) if special[index]
        ]
        """The columns whose values are not always written as they are."""

    def row(self, record: SinkRecord) -> list[Any]:
        """Return a record's values, those of the primary key first."""
        row = [_value(column, record) for column in self.columns]
        for index, column in self._special:
            value = row[index]
            if value is None:
                value = column.schema.default
            if value is not None and column.convert is not None:
                value = column.convert(value)
            row[index] = value
        if None in row[: len(self.keys)]:
            null = self.key_names[row.index(None)]
            raise ConnectException(
                f"Column {null} of the primary key is null in {coordinates(record)}"
            )
        return row


def _value(column: Column, record: SinkRecord) -> Any:
    if column.part == "value":
        return record.value.values[column.index]
    if column.part == "key":
        return record.key if column.index < 0 else record.key.values[column.index]
    assert record.original is not None
    return (record.topic, record.original.partition, record.offset)[column.index]


def coordinates(record: SinkRecord) -> str:
    """Return topic, partition and offset of a record, for messages."""
    partition = record.partition if record.original is None else record.original.partition
    return f"the record (topic='{record.topic}',partition={partition},offset={record.offset})"


class Layouts:
    """The layouts of a sink's records, by topic and schemas."""

    def __init__(self, database: Database, values: Mapping[str, Any]) -> None:
        """Take a connector's settings."""
        self._database, self._values = database, values
        self._known: dict[tuple[object, ...], RowLayout] = {}

    def layout(self, record: SinkRecord) -> RowLayout:
        """Return a record's layout; ConnectException if its schemas do not do for the settings."""
        parts = [
            it.schema if isinstance(it, Struct) else schema
            for it, schema in (
                (record.key, record.key_schema),
                (record.value, None if record.value is None else data.STRING),
            )
        ]
        key = (record.topic, record.key is None, *parts)
        layout = self._known.get(key)
        if layout is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            layout = self._known[key] = self._make(record)
        return layout

    def _make(self, record: SinkRecord) -> RowLayout:
        values, mode = self._values, self._values["pk.mode"]
        fields = self._value_fields(record)
        keys = self._keys(record, mode, fields)
        names = {it.name for it in keys}
        whitelist = set(values["fields.whitelist"])
        others = [
            it
            for name, it in fields.items()
            if name not in names and (not whitelist or name in whitelist)
        ]
        if not keys and not others:
            raise ConnectException(f"No fields to write of {coordinates(record)}")
        return RowLayout(self.table(record.topic), keys, others)

    def _value_fields(self, record: SinkRecord) -> dict[str, Column]:
        if record.value is None:
            if self._values["delete.enabled"]:
                return {}
            kind = "null"
        elif isinstance(record.value, Struct):
            return self._fields(record.value.schema, "value")
        else:
            kind = type(record.value).__name__
        raise ConnectException(
            "The sink writes values that are structs with a schema"
            f"{'' if kind != 'null' else ', and deletes only with delete.enabled=true'}, but found "
            f"a value of type {kind} in {coordinates(record)}"
        )

    def _fields(self, schema: Schema, part: str) -> dict[str, Column]:
        return {it.name: self._column(it.name, it.schema, part, it.index) for it in schema.fields}

    def _column(self, name: str, schema: Schema, part: str, index: int) -> Column:
        return Column(name, schema, part, index, self._database.conversion(logical_type(schema)))

    def _keys(self, record: SinkRecord, mode: str, fields: dict[str, Column]) -> list[Column]:
        names = list(self._values["pk.fields"])
        if mode == "none":
            return []
        if mode == "kafka":
            schemas = (data.STRING, data.INT32, data.INT64)
            return [
                self._column(name, schema, "kafka", index)
                for index, (name, schema) in enumerate(
                    zip(names or _COORDINATES, schemas, strict=True)
                )
            ]
        if mode == "record_value":
            source = fields
        elif isinstance(record.key, Struct):
            source = self._fields(record.key.schema, "key")
        elif record.key is None or record.key_schema is None:
            text = "pk.mode=record_key needs keys with a schema, but found none in"
            raise ConnectException(f"{text} {coordinates(record)}")
        elif record.key_schema.type in {SchemaType.ARRAY, SchemaType.MAP}:
            raise ConnectException(f"A list or a map is no primary key, in {coordinates(record)}")
        elif len(names) != 1:
            text = "Need exactly one pk.fields name for keys that are no structs, of"
            raise ConnectException(f"{text} {coordinates(record)}")
        else:
            return [self._column(names[0], record.key_schema, "key", -1)]
        missing = [it for it in names if it not in source]
        if missing:
            raise ConnectException(
                f"No field {missing[0]} for the primary key in {coordinates(record)}"
            )
        return [source[it] for it in names or source]

    def table(self, topic: str) -> TableId:
        """Return the table of a topic's records."""
        text = self._values["table.name.format"].replace("${topic}", topic)
        parts = split_name(text) if self._database.has_schemas else [text]
        if len(parts) > 2:
            raise ConnectException(
                f"{text} has more parts than a schema and a table: quote it in table.name.format, "
                "or change the topic by RegexRouter"
            )
        return TableId(parts[0] if len(parts) == 2 else None, parts[-1])


class Tables:
    """Makes and changes tables so that they have the columns of layouts."""

    def __init__(self, database: Database, values: Mapping[str, Any]) -> None:
        """Take a connector's settings."""
        self._database, self._values = database, values
        self._ready: set[RowLayout] = set()

    @property
    def are_known(self) -> bool:
        """Whether some tables were looked at before."""
        return bool(self._ready)

    def forget(self) -> None:
        """Look at all tables again."""
        self._ready.clear()
        self._database.forget_catalog()

    def prepare(self, layout: RowLayout) -> None:
        """Create or extend the table of a layout, in a transaction of its own."""
        if layout in self._ready:
            return
        statement = self._statement(layout)
        if statement is not None:
            log.info("%s", statement)
            try:
                self._database.execute(statement)
                self._database.commit()
            except Exception as error:
                self._database.rollback()
                # another task may have done the same just before
                if self._database.is_transient(error) or self._statement(layout) is not None:
                    raise
            self._database.forget_catalog()
        if len(self._ready) >= _KNOWN_MAX:
            self._ready.clear()
        self._ready.add(layout)

    def _statement(self, layout: RowLayout) -> str | None:
        """Return the statement that the table needs, None for a table as it should be."""
        database, table = self._database, layout.table
        quoted = database.quote_table(table)
        existing = {self._folded(it.name) for it in database.columns(table)}
        if not existing:
            if not self._values["auto.create"]:
                raise ConnectException(f"Table {table} is missing and auto-creation is disabled")
            parts = [self._defined(it, is_key=it in layout.keys) for it in layout.columns]
            if layout.keys:
                keys = ", ".join(map(database.quote, layout.key_names))
                parts.append(f"PRIMARY KEY ({keys})")
            return f"CREATE TABLE {quoted} ({', '.join(parts)})"
        missing = [it for it in layout.columns if self._folded(it.name) not in existing]
        if not missing:
            return None
        names = ", ".join(it.name for it in missing)
        if not self._values["auto.evolve"]:
            raise ConnectException(
                f"Table {table} is missing fields ({names}) and auto-evolution is disabled"
            )
        for column in missing:
            if not column.schema.optional and column.schema.default is None:
                raise ConnectException(
                    f"Cannot ALTER {table} to add missing field {column.name}, as the field is "
                    "not optional and does not have a default value"
                )
        # rows that exist have no value of the new columns
        added = ", ".join(
            f"ADD {quoted_column}"
            for quoted_column in (self._defined(it, is_key=False, null=True) for it in missing)
        )
        return f"ALTER TABLE {quoted} {added}"

    def _defined(self, column: Column, *, is_key: bool, null: bool = False) -> str:
        declared = self._database.column_type(column.schema, is_key=is_key)
        optional = null or (not is_key and column.schema.optional)
        return (
            f"{self._database.quote(column.name)} {declared} {'NULL' if optional else 'NOT NULL'}"
        )

    def _folded(self, name: str) -> str:
        return name.casefold() if self._database.ignores_case else name
