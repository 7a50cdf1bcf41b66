"""What PostgreSQL, MariaDB (with MySQL) and SQLite do in ways of their own.

Kafka: Confluent's PostgreSqlDatabaseDialect, MySqlDatabaseDialect, SqliteDatabaseDialect.
"""

from __future__ import annotations

import datetime as dt
import logging
import operator
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.connect.data import SchemaType
from ottla.connect.errors import ConnectException
from ottla.connect.jdbc.database import Database, ResultColumn, TableId
from ottla.connect.jdbc.rows import micros_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.jdbc.url import Address

log = logging.getLogger("ottla.connect.jdbc")
_T = SchemaType
_MYSQL_TRANSIENT: Final = frozenset(
    # too many connections, shutdown, broken packets, lock wait, deadlock, aborted, killed,
    # read-only after a failover, and the client's: cannot connect, gone, lost
    [
        *(1040, 1042, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1205, 1213, 1290, 1317),
        *(1836, 1927, 2002, 2003, 2006, 2013, 2055),
    ]
)


def like(pattern: str) -> re.Pattern[str]:
    """Return LIKE's pattern of names as a regular expression."""
    text = re.escape(pattern).replace("%", ".*").replace("_", ".")
    return re.compile(text)


class PostgreSql(Database):
    """PostgreSQL by psycopg; rows are written as arrays, so that a statement takes any number."""

    types: ClassVar[Mapping[SchemaType | str, str]] = {
        _T.INT8: "SMALLINT", _T.INT16: "SMALLINT", _T.INT32: "INT", _T.INT64: "BIGINT",
        _T.FLOAT32: "REAL", _T.FLOAT64: "DOUBLE PRECISION", _T.BOOLEAN: "BOOLEAN",
        _T.STRING: "TEXT", _T.BYTES: "BYTEA", "decimal": "DECIMAL", "date": "DATE",
        "time": "TIME", "timestamp": "TIMESTAMP",
    }  # fmt: skip
    _OIDS: ClassVar[Mapping[int, SchemaType | str]] = {
        16: _T.BOOLEAN, 21: _T.INT16, 23: _T.INT32, 20: _T.INT64, 26: _T.INT64,
        700: _T.FLOAT32, 701: _T.FLOAT64, 1700: "decimal", 17: _T.BYTES,
        1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamp",
        # text, varchar, char, name, "char", json, jsonb, uuid, xml
        **dict.fromkeys((25, 1043, 1042, 19, 18, 114, 3802, 2950, 142), _T.STRING),
    }  # fmt: skip

    def __init__(self, address: Address, values: Mapping[str, Any]) -> None:
        """Take a connector's settings."""
        super().__init__(address, values)
        self._types: dict[TableId, dict[str, str]] = {}
        self._enums: dict[int, bool] = {}

    def _open(self) -> Any:
        import psycopg

        password = self.address.password
        connection = psycopg.connect(
            host=self.address.host,
            port=self.address.port,
            dbname=self.address.database or None,
            user=self.address.user,
            password=None if password is None else password.reveal(),
            **self.address.arguments,
        )
        # columns without a time zone compare with moments in this one
        connection.execute("SELECT set_config('TimeZone', %s, false)", [self.zone.key])
        if self._isolation != "DEFAULT":
            level = self._isolation.replace("_", " ")
            connection.execute(
                f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
            )
        connection.commit()
        return connection

    def forget_catalog(self) -> None:
        """Forget types of columns."""
        self._types.clear()

    def conversion(self, logical: SchemaType | str) -> Callable[[Any], Any] | None:
        """Convert nothing: psycopg takes all values as they are."""
        del logical
        return None

    def _url(self) -> str:
        return "postgresql+psycopg://"

    def is_transient(self, error: Exception) -> bool:
        """Whether the connection or a lock is lost, or the server has no room just now."""
        import psycopg

        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
            return False
        return not re.search("authentication failed|does not exist|certificate", str(error))

    def stream(self) -> Any:
        """Return a cursor of the server, whose rows are fetched in portions."""
        from psycopg.types.string import TextLoader

        cursor = self.connection().cursor(name="ottla")
        # of this cursor alone, as SQLAlchemy reads JSON from the catalog
        for name in ("json", "jsonb", "uuid", "xml"):
            cursor.adapters.register_loader(name, TextLoader)
        return cursor

    def result_columns(
        self, description: Sequence[Any], cursor: Any, table: TableId | None
    ) -> list[ResultColumn]:
        """Return the types by their numbers in PostgreSQL's catalog."""
        del cursor, table
        return [
            ResultColumn(
                it.name, self._type(it.type_code), it.precision or 0,
                it.scale if it.precision else None,
            )
            for it in description
        ]  # fmt: skip

    def _type(self, oid: int) -> SchemaType | str | None:
        known = self._OIDS.get(oid)
        if known is not None:
            return known
        if oid not in self._enums:
            text = "SELECT typtype = 'e' OR typname = 'citext' FROM pg_type WHERE oid = %s"
            row = self.execute(text, [oid]).fetchone()
            self._enums[oid] = row is not None and row[0]
        return SchemaType.STRING if self._enums[oid] else None

    def now(self) -> dt.datetime:
        """Return the time of the statement, which is not the transaction's."""
        return self.to_moment(self.execute("SELECT clock_timestamp()").fetchone()[0])

    def timestamp_parameter(self, value: dt.datetime) -> Any:
        """Return the moment, whose time zone PostgreSQL takes."""
        return value

    def begin_rows(self) -> None:
        """Check deferred constraints by each statement, as a commit names no row."""
        self.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def upsert(self, table: TableId, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return ON CONFLICT."""
        del table
        names = ", ".join(map(self.quote, keys))
        others = [self.quote(it) for it in columns if it not in keys]
        if not others:
            return f" ON CONFLICT ({names}) DO NOTHING"
        sets = ", ".join(f"{it} = EXCLUDED.{it}" for it in others)
        return f" ON CONFLICT ({names}) DO UPDATE SET {sets}"

    def insert(
        self, table: TableId, columns: Sequence[str], rows: list[list[Any]], ending: str
    ) -> None:
        """Write rows by one statement, with an array for each column."""
        types = self._types.get(table)
        if types is None or not types.keys() >= set(columns):
            types = self._types[table] = self._read_types(table)
        names = ", ".join(map(self.quote, columns))
        arrays = ", ".join(f"%s::{types[it]}[]" for it in columns)
        text = (
            f"INSERT INTO {self.quote_table(table)} ({names}) "  # noqa: S608 - names are quoted
            f"SELECT * FROM unnest({arrays}){ending}"
        )
        self.execute(text, list(map(list, zip(*rows, strict=True))))

    def _read_types(self, table: TableId) -> dict[str, str]:
        """Return the columns' types without their lengths, as a cast would cut longer values."""
        text = (
            "SELECT attname, format_type(atttypid, -1) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        name = self.quote_table(table).replace("%%", "%")
        return {
            column: declared.replace("%", "%%")
            for column, declared in self.execute(text, [name]).fetchall()
        }

    def schemas(self, pattern: str | None, catalog: str | None) -> list[str | None]:
        """Return the schemas of users."""
        del catalog
        rows = self.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname <> 'information_schema' "
            "AND nspname NOT LIKE 'pg\\_%%' ORDER BY 1"
        ).fetchall()
        regex = like(pattern or "%")
        return [name for (name,) in rows if regex.fullmatch(name)]


class MariaDb(Database):
    """MariaDB and MySQL by PyMySQL, whose `executemany` joins rows to statements."""

    quote_mark: ClassVar[str] = "`"
    ignores_case: ClassVar[bool] = True
    name_bytes_max: ClassVar[int] = 64 * 4  # 64 characters, which the server refuses to exceed
    has_zero_dates: ClassVar[bool] = True
    types: ClassVar[Mapping[SchemaType | str, str]] = {
        _T.INT8: "TINYINT", _T.INT16: "SMALLINT", _T.INT32: "INT", _T.INT64: "BIGINT",
        _T.FLOAT32: "FLOAT", _T.FLOAT64: "DOUBLE", _T.BOOLEAN: "TINYINT",
        # long ones, as TEXT ends after 64 KiB
        _T.STRING: "LONGTEXT", _T.BYTES: "LONGBLOB", "decimal": "DECIMAL", "date": "DATE",
        "time": "TIME(3)", "timestamp": "DATETIME(3)",
    }  # fmt: skip
    _CODES: ClassVar[Mapping[int, tuple[SchemaType | str, SchemaType | str]]] = {
        # signed, unsigned
        1: (_T.INT8, _T.INT16), 2: (_T.INT16, _T.INT32), 9: (_T.INT32, _T.INT32),
        3: (_T.INT32, _T.INT64), 8: (_T.INT64, "decimal"), 13: (_T.INT16, _T.INT16),
        4: (_T.FLOAT32, _T.FLOAT32), 5: (_T.FLOAT64, _T.FLOAT64),
        0: ("decimal", "decimal"), 246: ("decimal", "decimal"),
        10: ("date", "date"), 11: ("time", "time"),
        7: ("timestamp", "timestamp"), 12: ("timestamp", "timestamp"),
        16: (_T.BYTES, _T.BYTES),
        # varchar, json, enum, set, the blobs and texts, char: bytes if they have no characters
        **dict.fromkeys((15, 245, 247, 248, 249, 250, 251, 252, 253, 254), (_T.STRING, _T.BYTES)),
    }  # fmt: skip
    _UNSIGNED: Final = 32
    _BINARY_CHARACTERS: Final = 63

    def _open(self) -> Any:
        import pymysql

        password = self.address.password
        connection = pymysql.connect(
            host=self.address.host,
            port=self.address.port,
            database=self.address.database or None,
            user=self.address.user,
            password="" if password is None else password.reveal(),
            charset="utf8mb4",
            **self.address.arguments,
        )
        with connection.cursor() as cursor:
            zone = "+00:00" if self.zone.key == "UTC" else self.zone.key
            try:
                cursor.execute("SET time_zone = %s", (zone,))
            except pymysql.err.Error as error:
                connection.close()
                text = f"The server has no db.timezone (mariadb-tzinfo-to-sql loads zones): {error}"
                raise ConnectException(text) from error
            if self._isolation != "DEFAULT":
                level = self._isolation.replace("_", " ")
                cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        return connection

    def _url(self) -> str:
        return "mysql+pymysql://"

    def is_transient(self, error: Exception) -> bool:
        """Whether a number of the server or the client says so."""
        import pymysql

        if isinstance(error, OSError):
            return True
        if not isinstance(error, pymysql.err.Error):
            return False
        if isinstance(error, pymysql.err.InterfaceError):
            return True  # the connection is closed
        return bool(error.args) and error.args[0] in _MYSQL_TRANSIENT

    def stream(self) -> Any:
        """Return a cursor that does not take the whole result into memory."""
        from pymysql.cursors import SSCursor

        return self.connection().cursor(SSCursor)

    def drop(self) -> None:
        """Forget the connection, and the rows of an open result, which PyMySQL would read first."""
        result = None if self._connection is None else self._connection._result  # noqa: SLF001
        if result is not None:
            result.unbuffered_active, result.connection = False, None
        super().drop()

    def result_columns(
        self, description: Sequence[Any], cursor: Any, table: TableId | None
    ) -> list[ResultColumn]:
        """Return the types by the numbers of the protocol."""
        del table
        columns = []
        # the description of PEP 249 has no place for signs and character sets
        for it, sent in zip(description, cursor._result.fields, strict=True):  # noqa: SLF001
            kinds = self._CODES.get(it[1])
            is_text = kinds is not None and kinds[0] is SchemaType.STRING
            other = (
                sent.charsetnr == self._BINARY_CHARACTERS and it[1] != 245
                if is_text
                else bool(sent.flags & self._UNSIGNED)
            )
            scale = sent.scale
            # the length has a place for the sign, and one for the point
            digits = sent.length - (not sent.flags & self._UNSIGNED) - (scale > 0)
            kind = None if kinds is None else kinds[other]
            if kind == "decimal" and it[1] == 8:
                scale = 0
            columns.append(ResultColumn(it[0], kind, digits, scale, bool(it[6])))
        return columns

    def upsert(self, table: TableId, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return ON DUPLICATE KEY."""
        del table
        # without further columns a key is set to itself, as IGNORE would hide other errors
        others = [self.quote(it) for it in columns if it not in keys] or [self.quote(keys[0])]
        sets = ", ".join(f"{it} = VALUES({it})" for it in others)
        return f" ON DUPLICATE KEY UPDATE {sets}"

    def key_type(self, declared: str) -> str:
        """Return a type that an index takes."""
        return {"LONGTEXT": "VARCHAR(256)", "LONGBLOB": "VARBINARY(256)"}.get(declared, declared)

    def decimal_type(self, scale: int) -> str:
        """Return the longest decimal with these digits after the point."""
        return f"DECIMAL(65,{scale})"

    def _schema_name(self) -> str | None:
        return self.address.database or None

    def schemas(self, pattern: str | None, catalog: str | None) -> list[str | None]:
        """Return the connection's database, or those of the pattern but the server's own."""
        del pattern
        if catalog is None:
            return [self._schema_name()]
        own = {"information_schema", "mysql", "performance_schema", "sys"}
        regex = like(catalog)
        names = [name for (name,) in self.execute("SHOW DATABASES").fetchall()]
        return [it for it in names if it not in own and regex.fullmatch(it)]


class Sqlite(Database):
    """A file of SQLite: moments and decimals are texts, as it has no types for them."""

    mark: ClassVar[str] = "?"
    name_bytes_max: ClassVar[int] = 1024
    has_schemas: ClassVar[bool] = False
    types: ClassVar[Mapping[SchemaType | str, str]] = {
        **dict.fromkeys((_T.INT8, _T.INT16, _T.INT32, _T.INT64, _T.BOOLEAN), "INTEGER"),
        _T.FLOAT32: "REAL", _T.FLOAT64: "REAL", _T.STRING: "TEXT", _T.BYTES: "BLOB",
        "decimal": "TEXT", "date": "DATE", "time": "TIME", "timestamp": "DATETIME",
    }  # fmt: skip
    _DECLARED: ClassVar[tuple[tuple[str, SchemaType | str], ...]] = (
        ("INT", _T.INT64), ("CHAR", _T.STRING), ("TEXT", _T.STRING), ("CLOB", _T.STRING),
        ("BLOB", _T.BYTES), ("REAL", _T.FLOAT64), ("FLO", _T.FLOAT64), ("DOUB", _T.FLOAT64),
        ("BOOL", _T.BOOLEAN), ("DATETIME", "timestamp"), ("TIMESTAMP", "timestamp"),
        ("DATE", "date"), ("TIME", "time"), ("NUM", _T.FLOAT64), ("DEC", _T.FLOAT64),
    )  # fmt: skip

    def _open(self) -> Any:
        import sqlite3

        # the worker stops a source from another thread
        connection = sqlite3.connect(self.address.database, check_same_thread=False)
        connection.create_function("ottla_moment", 1, self._micros, deterministic=True)
        return connection

    def _micros(self, value: Any) -> int | None:
        try:
            return None if value is None else micros_of(self.to_moment(value))
        except (TypeError, ValueError) as error:
            # SQLite says only that the function failed
            log.error("A timestamp cannot be read: %s", error)  # noqa: TRY400 - the task has it
            raise

    def _url(self) -> str:
        return "sqlite://"

    def is_transient(self, error: Exception) -> bool:
        """Whether another connection has a lock (SQLITE_BUSY, SQLITE_LOCKED)."""
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in {5, 6}

    def result_columns(
        self, description: Sequence[Any], cursor: Any, table: TableId | None
    ) -> list[ResultColumn]:
        """Return the types of a table's columns; results of queries have none."""
        del cursor
        if table is None:
            raise ConnectException("SQLite's results have no types: `query` does not work there")
        declared = {it.name: it.declared.upper() for it in self.columns(table)}
        columns = []
        for name, *_ in description:
            text = declared.get(name, "")
            kind = next((kind for word, kind in self._DECLARED if word in text), None)
            columns.append(ResultColumn(name, kind))
        return columns

    def begin_rows(self) -> None:
        """Begin a transaction, as the release of a savepoint outside of one is a commit."""
        self.execute("BEGIN")

    def now(self) -> dt.datetime:
        """Return the machine's time."""
        return dt.datetime.now(dt.UTC)

    def timestamp_parameter(self, value: dt.datetime) -> Any:
        """Return the moment as a text."""
        return value.astimezone(self.zone).replace(tzinfo=None).isoformat(" ")

    def moment(self, text: str) -> str:
        """Return microseconds: texts with a T, a Z or other digits may mean the same moment."""
        return f"ottla_moment({text})"

    def conversion(self, logical: SchemaType | str) -> Callable[[Any], Any] | None:
        """Return texts for what SQLite has no type for."""
        if logical == "timestamp":
            return self.timestamp_parameter
        if logical in {"date", "time"}:
            return operator.methodcaller("isoformat")
        return (lambda value: format(value, "f")) if logical == "decimal" else None

    def to_moment(self, value: Any) -> dt.datetime:
        """Read the text of a moment."""
        return super().to_moment(dt.datetime.fromisoformat(value))

    def key_condition(self, keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
        """Return the condition with VALUES, which SQLite wants for rows."""
        return super().key_condition(keys, rows).replace(" IN ((", " IN (VALUES (", 1)

    def upsert(self, table: TableId, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return ON CONFLICT, which SQLite has from PostgreSQL."""
        return PostgreSql.upsert(self, table, columns, keys)  # type: ignore[arg-type]


_KINDS: Final[dict[str, Callable[[Address, Mapping[str, Any]], Database]]] = {
    "postgresql": PostgreSql,
    "mysql": MariaDb,
    "sqlite": Sqlite,
}


def database(address: Address, values: Mapping[str, Any]) -> Database:
    """Return the connection to a database, which is not opened yet."""
    return _KINDS[address.kind](address, values)
