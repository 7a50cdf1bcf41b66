"""The rows of tables, or of a query, as records.

Kafka: Confluent's io.confluent.connect.jdbc.{JdbcSourceConnector, source.JdbcSourceTask,
source.TableMonitorThread}.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.problems import ConfigErrors
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import ExactlyOnceSupport, SourceConnector, SourceTask
from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.jdbc.database import Database, TableId, split_name
from ottla.connect.jdbc.dialects import database
from ottla.connect.jdbc.queries import RowOffset, RowSource, TableQuery
from ottla.connect.jdbc.settings import SOURCE
from ottla.connect.jdbc.url import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.config.definition import ConfigDefinitions, ConfigValue
    from ottla.connect.records import SourceRecord

log = logging.getLogger("ottla.connect.jdbc")
TABLES: Final = "tables"
"""The setting of tasks with their tables' quoted names."""
_NAMES: Final = re.compile(r'(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|[^,"`])+')
_QUERY_PARTITION: Final = {"query": "query"}
_WAIT_S: Final = 0.5
"""Longest wait of a poll, so that a pause is in time."""
_RETRY_S: Final = 1.0
"""Time before a query that failed is repeated."""


def partition_of(table: TableId) -> dict[str, str]:
    """Return the part of the source as Confluent's protocol 1 names it."""
    return {"protocol": "1", "table": str(table)}


def open_database(config: Mapping[str, str], values: Mapping[str, Any]) -> Database:
    """Return the database of a connector's settings."""
    return database(parse_address(values, config), values)


class JdbcSourceTask(SourceTask):
    """Reads its tables, one after the other, by one connection."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings; `poll` connects."""
        self._values = SOURCE.parse(config)
        self._database = open_database(config, self._values)
        self._tables = [
            TableId(".".join(parts[:-1]) or None, parts[-1])
            for parts in map(split_name, _NAMES.findall(config.get(TABLES, "")))
        ]
        self._queries: list[tuple[float, TableQuery]] = []
        """The queries with the time at which each is due."""
        self._failures = 0
        self._lock = threading.Lock()
        self._is_prepared = False

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next rows; waits for the next query for a short time."""
        try:
            with self._lock:
                try:
                    return self._poll()
                except Exception as error:
                    retriable = self._database.is_retriable(error)
                    self._close()
                    if not retriable:
                        if isinstance(error, ConnectException):
                            raise
                        raise ConnectException(f"A query failed: {error}") from error
                    self._recover(error)
        finally:
            # after the release of the lock, as a stop that meets a poll leaves this to it
            if self._database.is_stopped.is_set():
                self._close_unless_polled()
        return None

    def _poll(self) -> Sequence[SourceRecord] | None:
        if self._database.is_stopped.is_set():
            return None
        if not self._is_prepared:
            self._prepare()
            self._is_prepared = True
        if not self._queries:
            self._database.is_stopped.wait(_WAIT_S)
            return None
        due, query = min(self._queries, key=lambda it: (not it[1].is_open, it[0]))
        wait_s = due - time.monotonic()
        if not query.is_open and wait_s > 0:
            self._database.is_stopped.wait(min(wait_s, _WAIT_S))
            return None
        records = query.read()
        self._failures = 0
        if not query.is_open:
            due = time.monotonic() + self._values["poll.interval.ms"] / 1000
            self._queries = [(due if it is query else at, it) for at, it in self._queries]
        return records or None

    def _recover(self, error: Exception) -> None:
        """Go on after the last records with a new connection, or fail after too many attempts."""
        self._failures += 1
        limit = self._values["query.retry.attempts"]
        if 0 <= limit < self._failures:
            raise ConnectException(f"The database failed {self._failures} times") from error
        log.warning("A query failed and is repeated: %s", str(error).strip())
        self._database.is_stopped.wait(_RETRY_S)

    def _close(self) -> None:
        """End the connection, then the queries, which would read the rest of their rows by it."""
        self._database.drop()
        for _, query in self._queries:
            try:
                query.close()
            except Exception as error:  # noqa: BLE001 - the connection is closed
                log.debug("Closing a query failed: %s", error)

    def _prepare(self) -> None:
        """Make the queries, each from its stored offset."""
        values, prefix = self._values, self._values["topic.prefix"]
        if values["query"]:
            offset = self.context.offset(_QUERY_PARTITION)
            timestamps, incrementing = self._columns(None)
            source = RowSource(None, prefix, _QUERY_PARTITION, timestamps, incrementing)
            self._queries = [(0.0, self._query(source, offset))]
            return
        queries = []
        for table in self._tables:
            timestamps, incrementing = self._columns(table)
            partition = partition_of(table)
            older: list[Mapping[str, str]] = [{"table": table.name}]
            if self._database.address.kind == "postgresql":
                # newer drivers of Java name the database, too
                named = f"{self._database.address.database}.{table}"
                older.insert(0, {"protocol": "1", "table": named})
            stored = self.context.offsets([partition, *older])
            offset = next((it for it in stored if it is not None), None)
            topic = f"{prefix}{table.name}"
            source = RowSource(table, topic, partition, timestamps, incrementing)
            queries.append((0.0, self._query(source, offset)))
        self._queries = queries

    def _query(self, source: RowSource, stored: Mapping[str, Any] | None) -> TableQuery:
        offset = RowOffset.parse(stored)
        initial = self._values["timestamp.initial"]
        if source.timestamps and offset.timestamp is None and initial is not None:
            moment = dt.datetime.fromtimestamp(initial / 1000, dt.UTC)
            moment = self._database.now() if initial == -1 else moment
            offset = RowOffset(moment, offset.incrementing)
        return TableQuery(source, self._database, self._values, offset)

    def _columns(self, table: TableId | None) -> tuple[tuple[str, ...], str | None]:
        """Return the columns that find rows; ConnectException for those that may be null."""
        values = self._values
        modes = values["mode"].split("+")
        timestamps = tuple(values["timestamp.column.name"]) if "timestamp" in modes else ()
        incrementing = values["incrementing.column.name"] if "incrementing" in modes else None
        if table is None:
            return timestamps, incrementing or None
        columns = {it.name: it for it in self._database.columns(table)}
        if incrementing == "":
            own = [it.name for it in columns.values() if it.increments]
            if len(own) != 1:
                raise ConnectException(
                    f"Table {table} has {len(own)} columns that increment themselves: set "
                    "incrementing.column.name"
                )
            incrementing = own[0]
        for name in (*timestamps, *([incrementing] if incrementing else [])):
            if columns and name not in columns:
                raise ConnectException(f"No column {name} in {table}")
        if values["validate.non.null"] and columns:
            if incrementing and columns[incrementing].nullable:
                raise ConnectException(
                    f"Cannot make incremental queries using incrementing column {incrementing} on "
                    f"{table} because this column is nullable."
                )
            if timestamps and all(columns[it].nullable for it in timestamps):
                raise ConnectException(
                    f"Cannot make incremental queries using timestamp columns {list(timestamps)} "
                    f"on {table} because all of these columns nullable."
                )
        return timestamps, incrementing

    def stop(self) -> None:
        """Wake `poll` up; whoever is last closes the connection."""
        self._database.is_stopped.set()
        self._close_unless_polled()

    def _close_unless_polled(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()


class JdbcSourceConnector(SourceConnector):
    """Divides the tables of a database among tasks, and looks for new ones."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = SOURCE
    task_class = JdbcSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        """Find the tables, and look for others from time to time."""
        self._config = config
        self._values = SOURCE.parse(config)
        for problem in _problems(self._values, config):
            raise ConnectException(problem[1])
        self._database = open_database(config, self._values)
        self._tables: list[TableId] | None = None
        if not self._values["query"]:
            try:
                self._tables = self._find()
            except RetriableException as error:
                # as a task does: the database may be away when the worker starts
                log.warning("The search for tables is repeated: %s", str(error).strip())
            threading.Thread(target=self._watch, name="ottla-jdbc-tables", daemon=True).start()

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return one task for a query, else groups of tables of about the same size."""
        if self._values["query"]:
            return [dict(self._config)]
        tables = self._tables or []
        count = min(tasks_max, len(tables))
        groups = [tables[it::count] for it in range(count)]
        return [
            {**self._config, TABLES: ",".join(map(_quoted, group)), "tables.fetched": "true"}
            for group in groups
        ]

    def stop(self) -> None:
        """End the search for tables."""
        self._database.is_stopped.set()

    def validate(self, config: Mapping[str, str]) -> list[ConfigValue]:
        """Check settings one by one, then those that contradict each other."""
        outcomes = self.definitions.validate(config)
        if not any(it.errors for it in outcomes):
            values = SOURCE.parse(config)
            for name, text in _problems(values, config):
                next(it for it in outcomes if it.name == name).errors.append(text)
        return outcomes

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Support it where each row has an offset of its own."""
        return (
            ExactlyOnceSupport.SUPPORTED
            if "incrementing" in SOURCE.parse(config)["mode"]
            else ExactlyOnceSupport.UNSUPPORTED
        )

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check the form of offsets and of what they are for."""
        del config
        for partition, offset in offsets.items():
            names = {name for name, _ in partition}
            if names not in ({"table"}, {"table", "protocol"}, {"query"}):
                raise ConnectException(
                    "Partitions have the keys 'protocol' and 'table', or 'query'"
                )
            if offset is not None:
                RowOffset.parse(offset)
        return True

    def _find(self) -> list[TableId]:
        values, connection = self._values, self._database
        try:
            existing = connection.tables(
                values["table.types"], values["schema.pattern"], values["catalog.pattern"]
            )
        except Exception as error:
            if isinstance(error, ConnectException):
                raise
            kind = RetriableException if connection.is_retriable(error) else ConnectException
            raise kind(f"The search for tables failed: {error}") from error
        finally:
            connection.drop()
        tables = [it for it in existing if _is_selected(it, values)]
        duplicates = [
            name for name, times in Counter(it.name for it in tables).items() if times > 1
        ]
        if duplicates:
            raise ConnectException(
                "The connector uses the unqualified table name as the topic name and has detected "
                f"duplicate unqualified table names: {', '.join(duplicates)}. Narrow "
                "schema.pattern or the lists of tables."
            )
        if not tables:
            log.warning("No table to read among the %d that were found", len(existing))
        return tables

    def _watch(self) -> None:
        """Request new tasks when there are other tables; an error is the next search's."""
        interval_ms: int = self._values["table.poll.interval.ms"]
        first_ms = min(interval_ms, self._values["connection.backoff.ms"])
        while True:
            is_first = self._tables is None
            if self._database.is_stopped.wait((first_ms if is_first else interval_ms) / 1000):
                return
            try:
                tables = self._find()
            except ConnectException as error:
                if is_first and not isinstance(error, RetriableException):
                    self.context.raise_error(error)  # as `start` does
                    return
                log.warning("%s", str(error).strip())
                continue
            if tables != self._tables:
                self._tables = tables
                self.context.request_task_reconfiguration()


def _quoted(table: TableId) -> str:
    return ".".join('"' + it.replace('"', '""') + '"' for it in table if it is not None)


def _is_selected(table: TableId, values: Mapping[str, Any]) -> bool:
    """Whether the lists of names and of patterns have a table."""
    names = {table.name, str(table)}
    if values["table.whitelist"]:
        return bool(names.intersection(values["table.whitelist"]))
    if names.intersection(values["table.blacklist"]):
        return False
    includes, excludes = values["table.include.list"], values["table.exclude.list"]
    if includes and not any(re.fullmatch(it, str(table)) for it in includes):
        return False
    return not any(re.fullmatch(it, str(table)) for it in excludes)


def _problems(values: Mapping[str, Any], config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return settings that contradict each other, each with the reason."""
    problems = []
    lists = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")
    used = [it for it in lists if values[it]]
    if values["query"] and used:
        problems.append(("query", f"query and {used[0]} cannot be used together"))
    if len(used) > 1 and set(used) != {"table.include.list", "table.exclude.list"}:
        problems.append((used[1], f"{used[0]} and {used[1]} cannot be used together"))
    mode = values["mode"]
    if "timestamp" in mode and not values["timestamp.column.name"]:
        problems.append(("timestamp.column.name", f"mode={mode} needs timestamp.column.name"))
    if "incrementing" in mode and values["query"] and not values["incrementing.column.name"]:
        problems.append(("incrementing.column.name", f"mode={mode} needs it for a query"))
    types = {it.upper() for it in values["table.types"]} - {"TABLE", "VIEW"}
    if types:
        problems.append(("table.types", f"Unknown table types: {', '.join(sorted(types))}"))
    try:
        address = parse_address(values, config)
    except ConfigErrors as error:
        problems.append(("connection.url", str(error)))
    else:
        if address.kind == "sqlite" and values["query"]:
            problems.append(("query", "SQLite's results have no types: read tables"))
    return problems
