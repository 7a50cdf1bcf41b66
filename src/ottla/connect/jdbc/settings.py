"""The settings of both connectors.

Kafka: Confluent's JdbcSourceConnectorConfig and JdbcSinkConfig.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.config.checks import NON_EMPTY, at_least, one_of
from ottla.config.definition import (
    HIGH,
    LOW,
    MEDIUM,
    REQUIRED,
    ConfigDefinitions,
    Importance,
    Type,
)

if TYPE_CHECKING:
    from ottla.config.checks import Check

CONNECTION: Final = "Connection"


@dataclass(frozen=True, slots=True)
class ZoneName:
    """Names of time zones, as `UTC` and `Europe/Rome`."""

    def reason(self, name: str, value: Any) -> str | None:
        """Return the reason that refuses a value."""
        del name
        try:
            zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return "Invalid time zone identifier"
        return None


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions."""

    def reason(self, name: str, value: Any) -> str | None:
        """Return the reason that refuses a value."""
        del name
        for pattern in value or ():
            try:
                re.compile(pattern)
            except re.error as error:
                return f"{pattern} is not a regular expression: {error}"
        return None


Row = tuple[str, Type, Any, Importance, str, "Check | None"]
_CONNECTION: Final[tuple[Row, ...]] = (
    ("connection.url", Type.STRING, REQUIRED, HIGH,
     ("The database: jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mariadb://HOST:PORT/DATABASE, "
     "jdbc:mysql://HOST:PORT/DATABASE or jdbc:sqlite:FILE."), NON_EMPTY),
    ("connection.user", Type.STRING, None, HIGH, "The user of the database.", None),
    ("connection.password", Type.PASSWORD, None, HIGH, "The user's password.", None),
    ("connection.attempts", Type.INT, 3, LOW,
     "Maximum number of attempts to get a connection.", at_least(1)),
    ("connection.backoff.ms", Type.LONG, 10_000, LOW,
     "Time in milliseconds between attempts to get a connection.", at_least(1)),
    ("db.timezone", Type.STRING, "UTC", MEDIUM,
     "Time zone of timestamps in columns that store none.", ZoneName()),
    ("quote.sql.identifiers", Type.STRING, "always", MEDIUM,
     ("Whether names of tables and columns are quoted in statements. Names that are not quoted may "
     "have letters, digits and underscores only."), one_of("always", "never")),
)  # fmt: skip
_SOURCE: Final[tuple[Row, ...]] = (
    ("mode", Type.STRING, REQUIRED, HIGH,
     ("How rows are found: bulk reads the whole table each time; incrementing finds new rows by a "
     "column that grows; timestamp finds new and changed rows by a column with the time of the "
     "change; timestamp+incrementing uses both, and is the most exact."),
     one_of("bulk", "timestamp", "incrementing", "timestamp+incrementing")),
    ("incrementing.column.name", Type.STRING, "", MEDIUM,
     "The column that grows strictly. Empty: the table's own column that increments itself.", None),
    ("timestamp.column.name", Type.LIST, (), MEDIUM,
     "The columns with the time of a change; the first that is not null counts.", None),
    ("timestamp.initial", Type.LONG, None, LOW,
     "Milliseconds since the epoch from which rows are read at first; -1 is the current time.",
     None),
    ("validate.non.null", Type.BOOLEAN, True, LOW,
     "Refuse tables whose columns for finding rows may be null.", None),
    ("query", Type.STRING, "", MEDIUM,
     "A query to read instead of tables. topic.prefix is its topic.", None),
    ("query.suffix", Type.STRING, "", LOW, "Text to add at the end of each query.", None),
    ("table.whitelist", Type.LIST, (), MEDIUM, "Names of the tables to read, no others.", None),
    ("table.blacklist", Type.LIST, (), MEDIUM, "Names of tables that are not read.", None),
    ("table.include.list", Type.LIST, (), MEDIUM,
     "Regular expressions of whole qualified names (schema.table) of tables to read.", Patterns()),
    ("table.exclude.list", Type.LIST, (), MEDIUM,
     "Regular expressions of whole qualified names of tables that are not read.", Patterns()),
    ("table.types", Type.LIST, ("TABLE",), LOW, "TABLE, VIEW or both.", None),
    ("schema.pattern", Type.STRING, None, HIGH,
     "Schemas of the tables, with % and _ as in LIKE; all without it.", None),
    ("catalog.pattern", Type.STRING, None, MEDIUM,
     ("Databases of a MariaDB or MySQL server, with % and _ as in LIKE; the connection's without "
     "it."), None),
    ("table.poll.interval.ms", Type.LONG, 60_000, LOW,
     "Time in milliseconds between searches for new and dropped tables.", at_least(1)),
    ("topic.prefix", Type.STRING, REQUIRED, HIGH,
     "Text before the table's name in the topic's name.", None),
    ("poll.interval.ms", Type.INT, 5_000, HIGH,
     "Time in milliseconds between the queries of a table.", at_least(0)),
    ("batch.max.rows", Type.INT, 100, LOW,
     "Maximum number of records of a poll.", at_least(1)),
    ("timestamp.delay.interval.ms", Type.LONG, 0, HIGH,
     ("Time in milliseconds that a row is left alone after its timestamp, so that transactions "
     "with earlier timestamps commit before."), at_least(0)),
    ("numeric.mapping", Type.STRING, "none", LOW,
     ("none: NUMERIC is Decimal. precision_only: it is an integer where its digits fit and it has "
     "none after the point. best_fit: and a double where it has some. best_fit_eager_double: and "
     "a double whatever its precision."),
     one_of("none", "precision_only", "best_fit", "best_fit_eager_double")),
    ("numeric.precision.mapping", Type.BOOLEAN, False, LOW,
     "The same as numeric.mapping=precision_only.", None),
    ("timestamp.granularity", Type.STRING, "connect_logical", LOW,
     ("How timestamps are written: as Connect's Timestamp, in milliseconds, or as a number or text "
     "of microseconds or nanoseconds since the epoch."),
     one_of("connect_logical", "micros_long", "micros_string", "nanos_long", "nanos_string")),
    ("transaction.isolation.mode", Type.STRING, "DEFAULT", LOW,
     "The isolation of queries.",
     one_of("DEFAULT", "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE")),
    ("query.retry.attempts", Type.INT, -1, LOW,
     "Failures of queries in succession before the task fails; -1 has no limit.", at_least(-1)),
)  # fmt: skip
_SINK: Final[tuple[Row, ...]] = (
    ("insert.mode", Type.STRING, "insert", HIGH,
     "insert, upsert (insert, or update the row with the same key) or update.",
     one_of("insert", "upsert", "update")),
    ("batch.size", Type.INT, 3_000, MEDIUM, "Maximum number of rows of a statement.", at_least(1)),
    ("delete.enabled", Type.BOOLEAN, False, MEDIUM,
     "Whether a null value deletes the row of its key; pk.mode must be record_key.", None),
    ("table.name.format", Type.STRING, "${topic}", MEDIUM,
     "The table of a topic's records; ${topic} is the topic's name.", NON_EMPTY),
    ("pk.mode", Type.STRING, "none", HIGH,
     "The primary key: none, kafka (topic, partition and offset), record_key or record_value.",
     one_of("none", "kafka", "record_key", "record_value")),
    ("pk.fields", Type.LIST, (), MEDIUM,
     "The columns of the primary key; their meaning depends on pk.mode.", None),
    ("fields.whitelist", Type.LIST, (), MEDIUM,
     "The fields of values to write; all without it.", None),
    ("auto.create", Type.BOOLEAN, False, MEDIUM, "Create missing tables.", None),
    ("auto.evolve", Type.BOOLEAN, False, MEDIUM, "Add missing columns to tables.", None),
    ("max.retries", Type.INT, 10, MEDIUM,
     "Attempts to write again after an error that may pass, before the task fails.", at_least(0)),
    ("retry.backoff.ms", Type.INT, 3_000, MEDIUM,
     "Time in milliseconds before records are written again.", at_least(0)),
)  # fmt: skip


def _definitions(*groups: tuple[str, tuple[Row, ...]]) -> ConfigDefinitions:
    definitions = ConfigDefinitions()
    for group, rows in groups:
        for order, (name, type_, default, importance, doc, check) in enumerate(rows, 1):
            definitions.define(
                name, type_, default, doc, check,
                importance=importance, group=group, order=order,
            )  # fmt: skip
    return definitions


SOURCE: Final = _definitions((CONNECTION, _CONNECTION), ("Source", _SOURCE))
SINK: Final = _definitions((CONNECTION, _CONNECTION), ("Writes", _SINK))
