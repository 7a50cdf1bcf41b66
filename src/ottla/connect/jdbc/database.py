"""One connection to a database: tables and columns, statements, errors that may pass.

Drivers have Python's common interface (PEP 249), which moves the rows; SQLAlchemy reads what tables
there are and what they look like. Values reach a statement as parameters only; names are quoted
and checked.

Kafka: Confluent's io.confluent.connect.jdbc.dialect.{DatabaseDialect, GenericDatabaseDialect}.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
import threading
import warnings
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy.exc import DBAPIError, NoSuchTableError
from sqlalchemy.pool import NullPool

from ottla.connect.errors import ConnectException, RetriableException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ottla.connect.data import Schema, SchemaType
    from ottla.connect.jdbc.url import Address

log = logging.getLogger("ottla.connect.jdbc")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_PART: Final = re.compile(r'"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|([^".`]+)')


class TableId(NamedTuple):
    """A table by name; the schema of MariaDB is its database, SQLite has none."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        """Return the qualified name without quotes, as offsets have it."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def split_name(text: str) -> list[str]:
    """Return the parts of a qualified name, of which each may be quoted."""
    parts, at = [], 0
    while True:
        part = _QUOTED_PART.match(text, at)
        if part is None:
            raise ConnectException(f"Not a name of a table: {text}")
        twice, ticks, plain = part.groups()
        name = twice.replace('""', '"') if twice else ticks.replace("``", "`") if ticks else plain
        parts.append(name)
        at = part.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            raise ConnectException(f"Not a name of a table: {text}")
        at += 1


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as the catalog of the database has it."""

    name: str
    declared: str
    """The type in the database's words."""
    nullable: bool
    has_default: bool
    increments: bool


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result, with the type that records get of it."""

    name: str
    type: SchemaType | str | None
    """A type, or decimal, date, time, timestamp; None for what has no counterpart."""
    precision: int = 0
    scale: int | None = None
    """Digits after the point; None where each value has its own."""
    nullable: bool = True


class Database(ABC):
    """A connection that is opened when it is needed, and again after it was lost."""

    quote_mark: ClassVar[str] = '"'
    mark: ClassVar[str] = "%s"
    """The parameter in statements."""
    name_bytes_max: ClassVar[int] = 63
    """Longer names would be truncated silently."""
    has_schemas: ClassVar[bool] = True
    ignores_case: ClassVar[bool] = False
    """Whether names of columns that differ in case are the same."""
    has_zero_dates: ClassVar[bool] = False
    """Whether columns may have dates that no calendar has, which come as texts."""
    types: ClassVar[Mapping[SchemaType | str, str]]
    """The types of new columns."""

    def __init__(self, address: Address, values: Mapping[str, Any]) -> None:
        """Take a connector's settings; nothing is opened yet."""
        self.address = address
        self.zone = ZoneInfo(values["db.timezone"])
        self._quotes = values["quote.sql.identifiers"] == "always"
        self._attempts: int = values["connection.attempts"]
        self._backoff_s: float = values["connection.backoff.ms"] / 1000
        self._isolation: str = values.get("transaction.isolation.mode", "DEFAULT")
        self._connection: Any = None
        self.is_stopped = threading.Event()

    # ------------------------------------------------------------ what differs

    @abstractmethod
    def _open(self) -> Any:
        """Return a new connection of the driver, whose time zone is the database's."""

    @abstractmethod
    def _url(self) -> str:
        """Return the dialect and the driver as SQLAlchemy names them."""

    @abstractmethod
    def is_transient(self, error: Exception) -> bool:
        """Whether the same statement may succeed later: a lost connection, a deadlock, a lock."""

    @abstractmethod
    def result_columns(
        self, description: Sequence[Any], cursor: Any, table: TableId | None
    ) -> list[ResultColumn]:
        """Return the types of a result."""

    @abstractmethod
    def upsert(self, table: TableId, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the ending of an INSERT that updates the row with the same key."""

    def stream(self) -> Any:
        """Return a cursor that reads rows as they are needed."""
        return self.connection().cursor()

    def insert(
        self, table: TableId, columns: Sequence[str], rows: list[list[Any]], ending: str
    ) -> None:
        """Write rows by as few statements as the database takes."""
        names = ", ".join(map(self.quote, columns))
        marks = ", ".join([self.mark] * len(columns))
        text = f"INSERT INTO {self.quote_table(table)} ({names}) VALUES ({marks}){ending}"  # noqa: S608 - names are quoted
        self.connection().cursor().executemany(text, rows)

    def key_condition(self, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
        """Return the condition of rows by their keys, with a parameter for each value."""
        if len(keys) == 1:
            marks = ", ".join([self.mark] * len(rows))
            return f"{self.quote(keys[0])} IN ({marks})"
        row = f"({', '.join([self.mark] * len(keys))})"
        return f"({', '.join(map(self.quote, keys))}) IN ({', '.join([row] * len(rows))})"

    def timestamp_parameter(self, value: dt.datetime) -> Any:
        """Return a moment in UTC as the driver takes it."""
        return value.astimezone(self.zone).replace(tzinfo=None)

    def moment(self, text: str) -> str:
        """Return an expression whose values compare as the moments of a column or parameter do."""
        return text

    def conversion(self, logical: SchemaType | str) -> Callable[[Any], Any] | None:
        """Return what makes the driver's values of a record's; None where they are the same."""
        return self.timestamp_parameter if logical == "timestamp" else None

    def to_moment(self, value: Any) -> dt.datetime:
        """Return a timestamp of a column in UTC."""
        if value.tzinfo is None:
            value = value.replace(tzinfo=self.zone)
        return value.astimezone(dt.UTC)  # type: ignore[no-any-return]

    def key_type(self, declared: str) -> str:
        """Return the type of a new column of a primary key."""
        return declared

    def decimal_type(self, scale: int) -> str:
        """Return the type of a new column of decimals."""
        del scale
        return self.types["decimal"]

    def now(self) -> dt.datetime:
        """Return the database's time in UTC."""
        cursor = self.execute("SELECT CURRENT_TIMESTAMP(6)")
        return self.to_moment(cursor.fetchone()[0])

    def schemas(self, pattern: str | None, catalog: str | None) -> list[str | None]:
        """Return the schemas whose tables are read."""
        del pattern, catalog
        return [None]

    # ------------------------------------------------------------ connection

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error may pass, the driver's or that of the last attempt to connect."""
        return isinstance(error, RetriableException) or self.is_transient(error)

    def connection(self) -> Any:
        """Return the connection; RetriableException after the last attempt to open it."""
        for attempt in range(1, self._attempts + 1):
            if self._connection is not None:
                break
            try:
                self._connection = self._open()
            except Exception as error:
                if not self.is_transient(error):
                    raise ConnectException(f"No connection to {self.address}: {error}") from error
                text = f"No connection to {self.address} (attempt {attempt}): {error}"
                log.warning("%s", text.strip())
                if attempt == self._attempts or self.is_stopped.wait(self._backoff_s):
                    raise RetriableException(text) from error
        return self._connection

    def execute(self, text: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement and return its cursor."""
        cursor = self.connection().cursor()
        cursor.execute(text, tuple(parameters))
        return cursor

    def begin_rows(self) -> None:  # noqa: B027 - the first statement begins a transaction
        """Begin a transaction in which statements are refused one by one, by savepoints."""

    def commit(self) -> None:
        """End the transaction."""
        self.connection().commit()

    def forget_catalog(self) -> None:  # noqa: B027 - most keep nothing of it
        """Discard what is cached of the catalog, which other sessions may have changed."""

    def drop(self) -> None:
        """Forget the connection: what it did and did not commit is undone."""
        self.forget_catalog()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception as error:  # noqa: BLE001 - it is broken already
                log.debug("Closing a connection failed: %s", error)

    def rollback(self) -> None:
        """Undo the transaction; a connection that cannot is forgotten."""
        if self._connection is not None:
            try:
                self._connection.rollback()
            except Exception:  # noqa: BLE001 - any failure means that it is lost
                self.drop()

    # ------------------------------------------------------------ names

    def quote(self, name: str) -> str:
        """Return a name for a statement; ConnectException for one that the database would cut."""
        if not name or "\0" in name or len(name.encode()) > self.name_bytes_max:
            raise ConnectException(f"Not a name that {self.address.kind} takes: {name!r}")
        if not self._quotes:
            if not _PLAIN_NAME.fullmatch(name):
                raise ConnectException(f"Needs quote.sql.identifiers=always: {name!r}")
            return name
        mark = self.quote_mark
        quoted = f"{mark}{name.replace(mark, mark * 2)}{mark}"
        return quoted.replace("%", "%%") if self.mark == "%s" else quoted

    def quote_table(self, table: TableId) -> str:
        """Return a table's name for a statement."""
        name = self.quote(table.name)
        return name if table.schema is None else f"{self.quote(table.schema)}.{name}"

    # ------------------------------------------------------------ catalog

    @contextmanager
    def _inspect(self) -> Iterator[sqlalchemy.Inspector]:
        """Read the catalog by a connection of its own, so that no transaction is disturbed."""
        engine = sqlalchemy.create_engine(self._url(), creator=self._open, poolclass=NullPool)
        try:
            yield sqlalchemy.inspect(engine)
        except DBAPIError as error:  # whose text has the statement
            raise error.orig or error from None

    def tables(
        self, types: Iterable[str], pattern: str | None, catalog: str | None
    ) -> list[TableId]:
        """Return the tables, the views or both, in the order of their names."""
        schemas = self.schemas(pattern, catalog)
        self.rollback()
        kinds = {it.upper() for it in types}
        tables: list[TableId] = []
        with self._inspect() as inspector:
            for schema in schemas:
                if "TABLE" in kinds:
                    tables += [TableId(schema, it) for it in inspector.get_table_names(schema)]
                if "VIEW" in kinds:
                    tables += [TableId(schema, it) for it in inspector.get_view_names(schema)]
        return sorted(tables)

    def columns(self, table: TableId) -> list[TableColumn]:
        """Return a table's columns, none of a table that does not exist."""
        with self._inspect() as inspector, warnings.catch_warnings():
            # types that SQLAlchemy does not know are none of ours either
            warnings.filterwarnings("ignore", "Did not recognize type")
            try:
                reflected = inspector.get_columns(table.name, table.schema)
            except NoSuchTableError:
                return []
        return [
            TableColumn(
                it["name"],
                str(it["type"]),
                bool(it["nullable"]),
                it["default"] is not None or bool(it.get("identity") or it.get("computed")),
                it.get("autoincrement") is True or bool(it.get("identity")),
            )
            for it in reflected
        ]

    # ------------------------------------------------------------ new tables

    def column_type(self, schema: Schema, *, is_key: bool) -> str:
        """Return the type of a new column; ConnectException for nested values."""
        logical = logical_type(schema)
        if logical == "decimal":
            return self.decimal_type(int((schema.parameters or {}).get("scale", "0")))
        declared = self.types.get(logical)
        if declared is None:
            raise ConnectException(f"Values of type {schema} have no type of column")
        return self.key_type(declared) if is_key else declared


_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Decimal": "decimal",
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time",
    "org.apache.kafka.connect.data.Timestamp": "timestamp",
}


def logical_type(schema: Schema) -> SchemaType | str:
    """Return the meaning of a schema's values, else their type."""
    return _LOGICAL.get(schema.name or "", schema.type)
