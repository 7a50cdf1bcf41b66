"""The records of topics as rows of tables.

The records of one `put` are one transaction: rows of the same columns go together by few
statements, and several changes of a key are one.

Kafka: Confluent's io.confluent.connect.jdbc.{JdbcSinkConnector, sink.JdbcSinkTask,
sink.JdbcDbWriter, sink.BufferedRecords}.
"""

from __future__ import annotations

import logging
import unicodedata
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ottla.config.problems import ConfigErrors
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SinkTask, UniformSinkConnector
from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.jdbc.dialects import database
from ottla.connect.jdbc.layout import Layouts, RowLayout, Tables
from ottla.connect.jdbc.settings import SINK
from ottla.connect.jdbc.url import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ottla.config.definition import ConfigDefinitions, ConfigValue
    from ottla.connect.jdbc.database import Database, TableId
    from ottla.connect.records import SinkRecord

log = logging.getLogger("ottla.connect.jdbc")
_T = TypeVar("_T")
Change = tuple[RowLayout, "list[Any]", bool]
"""The columns, the row, and whether it is deleted (which has the key alone)."""


class Changes:
    """The changes of one table, in an order that leaves what theirs would leave."""

    def __init__(self, *, merges: bool) -> None:
        """Say whether later changes of a key replace earlier ones, as an upsert allows."""
        self._merges = merges
        self._groups: list[list[Change]] = []
        self._by_key: dict[tuple[Any, ...], int] = {}

    def add(self, layout: RowLayout, row: list[Any], *, deletes: bool) -> None:
        """Take the next change."""
        change = (layout, row, deletes)
        if not self._merges:
            if not self._groups:
                self._groups.append([])
            self._groups[-1].append(change)
            return
        count = len(layout.keys)
        key = tuple([_folded(it) if isinstance(it, str) else it for it in row[:count]])
        index = self._by_key.get(key)
        if index is not None:
            earlier, other, was_deleted = self._groups[-1][index]
            is_same = other[:count] == row[:count]
            if is_same and (deletes or (earlier is layout and not was_deleted)):
                self._groups[-1][index] = change
                return
        if index is not None or not self._groups:
            # the columns that this row lacks are those of the row before, or their defaults; and
            # texts that differ may be the same key for the database
            self._groups.append([])
            self._by_key = {}
        self._by_key[key] = len(self._groups[-1])
        self._groups[-1].append(change)

    def batches(self) -> Iterator[tuple[RowLayout, list[list[Any]], bool]]:
        """Yield rows that go together; without merging, neighbours only."""
        for group in self._groups:
            if self._merges:
                # each key is in one change, so that their order is free; deletes make room first
                group.sort(key=lambda it: (not it[2], id(it[0])))
            for _, changes in groupby(group, key=lambda it: (id(it[0]), it[2])):
                batch = list(changes)
                yield batch[0][0], [it[1] for it in batch], batch[0][2]


class _OutOfRetries(ConnectException):
    """Ends the task whatever is tolerated: an outage is no error of the records."""


def _refusal(error: Exception) -> ConnectException:
    """Return the reason against rows, with the database's error as its cause."""
    if isinstance(error, ConnectException):
        return error
    refusal = ConnectException(f"The database refused rows: {error}")
    refusal.__cause__ = error
    return refusal


def _folded(text: str) -> str:
    """Return the same text for texts that a collation of a database may take for equal."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        text = "".join([it for it in parts if not unicodedata.combining(it)])
    return text.rstrip().casefold()


class RowWriter:
    """Writes records by one connection."""

    def __init__(self, connection: Database, values: Mapping[str, Any]) -> None:
        """Take a connector's settings."""
        self._database, self._values = connection, values
        self._layouts = Layouts(connection, values)
        self.tables = Tables(connection, values)

    def change(self, record: SinkRecord) -> Change:
        """Return what a record changes; ConnectException for one that cannot be written."""
        layout = self._layouts.layout(record)
        return layout, layout.row(record), record.value is None

    def write(self, changes: Sequence[Change]) -> None:
        """Make changes, all or none."""
        for layout in dict.fromkeys(map(itemgetter(0), changes)):
            self.tables.prepare(layout)
        self._apply(changes)
        self._database.commit()

    def write_each(self, changes: Sequence[Change]) -> list[tuple[int, ConnectException]]:
        """Make, in one transaction, the changes that the database accepts.

        Returns the reasons against the others, by their positions. An error that may pass leaves
        none of the changes.
        """
        refused: dict[RowLayout, ConnectException] = {}
        # before any row, as a new table ends the transaction
        for layout in dict.fromkeys(map(itemgetter(0), changes)):
            try:
                self.tables.prepare(layout)
            except Exception as error:
                if self._database.is_retriable(error):
                    raise
                refused[layout] = _refusal(error)
        self._database.begin_rows()
        reasons = [refused.get(change[0]) or self._apply_one(change) for change in changes]
        self._database.commit()
        return [(index, reason) for index, reason in enumerate(reasons) if reason is not None]

    def _apply_one(self, change: Change) -> ConnectException | None:
        """Make a change; return the reason if the database refuses it, and only it."""
        connection = self._database
        connection.execute("SAVEPOINT ottla_row")
        try:
            self._apply([change])
        except Exception as error:
            if connection.is_retriable(error):
                raise
            connection.execute("ROLLBACK TO SAVEPOINT ottla_row")
            return _refusal(error)
        connection.execute("RELEASE SAVEPOINT ottla_row")
        return None

    def _apply(self, changes: Sequence[Change]) -> None:
        by_table: dict[TableId, Changes] = {}
        for layout, row, deletes in changes:
            pending = by_table.get(layout.table)
            if pending is None:
                merges = self._values["insert.mode"] == "upsert"
                pending = by_table[layout.table] = Changes(merges=merges)
            pending.add(layout, row, deletes=deletes)
        for pending in by_table.values():
            for layout, rows, deletes in pending.batches():
                self._write(layout, rows, deletes=deletes)

    def _write(self, layout: RowLayout, rows: list[list[Any]], *, deletes: bool) -> None:
        size: int = self._values["batch.size"]
        mode = self._values["insert.mode"]
        connection, table, keys = self._database, layout.table, layout.key_names
        if deletes:
            # parameters of a statement are limited: 32,766 by SQLite, 65,535 by PostgreSQL
            size = min(size, 10_000 // len(keys))
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            if deletes:
                condition = connection.key_condition(keys, part)
                text = f"DELETE FROM {connection.quote_table(table)} WHERE {condition}"  # noqa: S608 - quoted
                connection.execute(text, [value for row in part for value in row])
            elif mode == "update":
                self._update(layout, part)
            else:
                ending = connection.upsert(table, layout.names, keys) if mode == "upsert" else ""
                connection.insert(table, layout.names, part, ending)

    def _update(self, layout: RowLayout, rows: list[list[Any]]) -> None:
        if not layout.others:
            return
        connection, count = self._database, len(layout.keys)
        sets = ", ".join(f"{connection.quote(it.name)} = {connection.mark}" for it in layout.others)
        condition = " AND ".join(
            f"{connection.quote(it)} = {connection.mark}" for it in layout.key_names
        )
        text = f"UPDATE {connection.quote_table(layout.table)} SET {sets} WHERE {condition}"  # noqa: S608 - quoted
        connection.connection().cursor().executemany(
            text, [row[count:] + row[:count] for row in rows]
        )


class JdbcSinkTask(SinkTask):
    """Writes its partitions' records; what the database refuses is a dead letter or the end."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings; the first `put` connects."""
        self._values = SINK.parse(config)
        self._database = database(parse_address(self._values, config), self._values)
        self._writer = RowWriter(self._database, self._values)
        self._tolerates = config.get("errors.tolerance", "none") == "all"
        self._retries: int = self._values["max.retries"]

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records in one transaction; RetriableException while the database is away."""
        if not records:
            return
        changes: list[tuple[SinkRecord, Change]] = []
        refused: list[tuple[SinkRecord, ConnectException]] = []
        for record in records:
            try:
                changes.append((record, self._writer.change(record)))
            except ConnectException as error:
                if not self._tolerates:
                    raise
                refused.append((record, error))
        rows = [change for _, change in changes]
        try:
            self._write(lambda: self._writer.write(rows))
        except ConnectException as error:
            if isinstance(error, RetriableException | _OutOfRetries) or not self._tolerates:
                raise
            reasons = self._write(lambda: self._writer.write_each(rows))
            refused += [(changes[index][0], reason) for index, reason in reasons]
        # not before: records that are redelivered after an outage would be dead letters again
        for record, cause in refused:
            self.context.report_errant(record, cause)
        self._retries = self._values["max.retries"]

    def _write(self, write: Callable[[], _T]) -> _T:
        """Make changes; tables that were looked at before are looked at again after an error."""
        tables = self._writer.tables
        while True:
            again = tables.are_known
            try:
                return write()
            except Exception as error:  # noqa: BLE001 - the last attempt raises it
                self._database.rollback()
                tables.forget()
                if self._database.is_retriable(error):
                    self._retry(error)
                if not again:
                    refusal = _refusal(error)
                    raise refusal from refusal.__cause__

    def _retry(self, error: Exception) -> None:
        """Request the records again; without retries left the task ends."""
        self._database.drop()
        if self._retries <= 0:
            raise _OutOfRetries(f"The database failed, without retries left: {error}") from error
        self._retries -= 1
        self.context.set_timeout_ms(self._values["retry.backoff.ms"])
        raise RetriableException(str(error).strip()) from error

    def stop(self) -> None:
        """Close the connection."""
        self._database.is_stopped.set()
        self._database.drop()


class JdbcSinkConnector(UniformSinkConnector):
    """Writes topics to tables."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = SINK
    task_class = JdbcSinkTask

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        for problem in _problems(SINK.parse(config), config):
            raise ConnectException(problem[1])
        super().start(config)

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Check settings one by one, then those that contradict each other."""
        outcomes = self.definitions.validate(config)
        if not any(it.errors for it in outcomes):
            for name, text in _problems(SINK.parse(config), config):
                next(it for it in outcomes if it.name == name).errors.append(text)
        return outcomes


def _problems(values: Mapping[str, Any], config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return settings that contradict each other, each with the reason."""
    problems, mode = [], values["pk.mode"]
    if values["delete.enabled"] and mode != "record_key":
        problems.append(
            (
                "delete.enabled",
                "Primary key mode must be 'record_key' when delete support is enabled",
            )
        )
    if values["insert.mode"] != "insert" and mode == "none":
        text = f"insert.mode={values['insert.mode']} needs a primary key: set pk.mode"
        problems.append(("pk.mode", text))
    if mode == "kafka" and len(values["pk.fields"]) not in {0, 3}:
        text = "pk.mode=kafka takes three names of topic, partition and offset, or none"
        problems.append(("pk.fields", text))
    try:
        parse_address(values, config)
    except ConfigErrors as error:
        problems.append(("connection.url", str(error)))
    return problems
