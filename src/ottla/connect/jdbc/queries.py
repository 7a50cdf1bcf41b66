"""The query of one table, again and again, from the offset of its last record.

A query reads all rows since the offset in order, by a cursor that stays open over several polls.
The offset of a row is one from which nothing is lost: in mode `timestamp`, where rows may share a
timestamp, it is the last timestamp that was read whole, so that a restart repeats rows of one
timestamp rather than lose some.

Kafka: Confluent's io.confluent.connect.jdbc.source.{TableQuerier, BulkTableQuerier,
TimestampIncrementingTableQuerier, TimestampTableQuerier, TimestampIncrementingOffset}.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.jdbc.rows import EPOCH, RowMapping, micros_of
from ottla.connect.records import SourceRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.jdbc.database import Database, TableId


@dataclass(frozen=True, slots=True)
class RowOffset:
    """The row after which a query goes on; both parts are optional, by the mode."""

    timestamp: dt.datetime | None = None
    incrementing: int | None = None

    @classmethod
    def parse(cls, stored: Mapping[str, Any] | None) -> RowOffset:
        """Read a stored offset; ConnectException for anything but its numbers."""
        stored = stored or {}
        numbers: dict[str, int | None] = {}
        for name in ("timestamp", "timestamp_nanos", "incrementing"):
            number = numbers[name] = stored.get(name)
            if number is not None and type(number) is not int:
                raise ConnectException(f"The offset's {name} is not a number")
        milliseconds, nanos = numbers["timestamp"], numbers["timestamp_nanos"]
        moment = None
        if milliseconds is not None:
            try:
                if nanos is None:
                    moment = EPOCH + dt.timedelta(milliseconds=milliseconds)
                else:
                    seconds = dt.timedelta(seconds=milliseconds // 1000)
                    moment = EPOCH + seconds + dt.timedelta(microseconds=nanos // 1000)
            except OverflowError:
                raise ConnectException("The offset's timestamp is out of range") from None
        return cls(moment, numbers["incrementing"])

    def stored(self) -> dict[str, int]:
        """Return the offset as it is stored."""
        stored = {}
        if self.timestamp is not None:
            micros = micros_of(self.timestamp)
            stored["timestamp"] = micros // 1000
            stored["timestamp_nanos"] = micros % 1_000_000 * 1000
        if self.incrementing is not None:
            stored["incrementing"] = self.incrementing
        return stored


@dataclass(frozen=True, slots=True)
class RowSource:
    """What a query reads and where its records go."""

    table: TableId | None
    """None for `query`."""
    topic: str
    partition: Mapping[str, str]
    timestamps: tuple[str, ...] = ()
    incrementing: str | None = None


class TableQuery:
    """Reads one table, or the result of one query."""

    def __init__(
        self, source: RowSource, database: Database, values: Mapping[str, Any], offset: RowOffset
    ) -> None:
        """Take the offset to begin at."""
        self.source, self._database, self._values = source, database, values
        self.offset = offset
        """The offset of the last record."""
        self._waiting: list[Any] = []
        self._batch_size: int = values["batch.max.rows"]
        self._cursor: Any = None
        self._mapping: RowMapping | None = None
        self._positions: list[int] = []
        self._schema_key: object = None
        self._is_reused = False
        """Whether the mapping is that of an earlier query, whose columns had the same types."""

    @property
    def is_open(self) -> bool:
        """Whether rows of the last query are still to be read."""
        return self._cursor is not None

    def read(self) -> list[SourceRecord]:
        """Return the next rows; without any, or after the last one, the query is closed."""
        before = self.offset
        try:
            return self._read()
        except Exception:
            self.offset = before  # the rows that were read are not returned
            raise

    def _read(self) -> list[SourceRecord]:
        if self._cursor is None:
            self._begin()
        mapping = self._mapping
        assert mapping is not None
        count, rows = self._batch_size, self._waiting
        # one more, which shows whether the timestamp of the last one is read whole
        rows.extend(self._cursor.fetchmany(count + 1 - len(rows)))
        if self._is_reused and mapping.has_new_null(rows):
            self._schema_key = None
            raise RetriableException(f"A column of {self.source.table} may be null by now")
        moments = [self._moment(row) for row in rows] if self.source.timestamps else None
        records = []
        for index, row in enumerate(rows[:count]):
            offset: dict[str, int] | None = None
            if self._positions:
                self._advance(row, moments[index : index + 2] if moments else [])
                offset = self.offset.stored()
            records.append(
                SourceRecord(
                    self.source.topic,
                    value_schema=mapping.schema,
                    value=mapping.struct(row),
                    source_partition=self.source.partition,
                    source_offset=offset,
                )
            )
        self._waiting = rows[count:]
        if not self._waiting:
            self.close()
            self._database.commit()
        return records

    def close(self) -> None:
        """End the query; the next one begins after the last record."""
        cursor, self._cursor = self._cursor, None
        self._waiting = []
        if cursor is not None:
            cursor.close()

    def _begin(self) -> None:
        text, parameters = self._statement()
        cursor = self._cursor = self._database.stream()
        cursor.execute(text, tuple(parameters))
        table, source = self.source.table, self.source
        description = cursor.description
        key = [tuple(it) for it in description]
        self._is_reused = self._mapping is not None and key == self._schema_key
        if self._is_reused:
            return
        self._schema_key = key
        columns = self._database.result_columns(description, cursor, table)
        required = (
            []
            if table is None
            else [it.name for it in self._database.columns(table) if not it.nullable]
        )
        self._mapping = RowMapping(
            columns,
            name=None if table is None else table.name,
            required=required,
            database=self._database,
            values=self._values,
        )
        names = [it.name for it in columns]
        offset_columns = [
            *source.timestamps,
            *([source.incrementing] if source.incrementing else []),
        ]
        missing = [it for it in offset_columns if it not in names]
        if missing:
            raise ConnectException(f"No column {missing[0]} in {table or 'the query'}")
        self._positions = [names.index(it) for it in offset_columns]

    def _statement(self) -> tuple[str, list[Any]]:
        """Return the text and the parameters of the next query."""
        database, source, values = self._database, self.source, self._values
        escaped = database.mark == "%s"  # where a percent sign begins a parameter
        query, suffix = values["query"].strip().rstrip(";"), values["query.suffix"]
        if escaped:
            query, suffix = query.replace("%", "%%"), suffix.replace("%", "%%")
        if source.table is not None:
            text = f"SELECT * FROM {database.quote_table(source.table)}"  # noqa: S608 - quoted
        else:
            text = f"{query}\n"  # the query may end in a comment
            if source.timestamps or source.incrementing:
                text = f"SELECT * FROM ({text}) AS ottla_rows"  # noqa: S608 - the operator's query
        conditions, parameters, order = self._conditions()
        if conditions:
            text += f" WHERE {conditions} ORDER BY {order}"
        return f"{text} {suffix}".rstrip(), parameters

    def _conditions(self) -> tuple[str, list[Any], str]:
        database, source, mark = self._database, self.source, self._database.mark
        number = -1 if self.offset.incrementing is None else self.offset.incrementing
        column = database.quote(source.incrementing) if source.incrementing else ""
        if not source.timestamps:
            return (f"{column} > {mark}", [number], column) if column else ("", [], "")
        moment = ", ".join(map(database.quote, source.timestamps))
        if len(source.timestamps) > 1:
            moment = f"COALESCE({moment})"
        moment, bound = database.moment(moment), database.moment(mark)
        delay = dt.timedelta(milliseconds=self._values["timestamp.delay.interval.ms"])
        end = database.timestamp_parameter(database.now() - delay)
        begin = database.timestamp_parameter(self.offset.timestamp or EPOCH)
        if not column:
            return f"{moment} > {bound} AND {moment} < {bound}", [begin, end], moment
        return (
            (
                f"{moment} < {bound} AND (({moment} = {bound} AND {column} > {mark}) "
                f"OR {moment} > {bound})"
            ),
            [end, begin, number, begin],
            f"{moment}, {column}",
        )

    def _moment(self, row: Sequence[Any]) -> dt.datetime:
        """Return a row's timestamp: the first that is not null."""
        values = (row[it] for it in self._positions[: len(self.source.timestamps)])
        return self._database.to_moment(next(it for it in values if it is not None))

    def _advance(self, row: Sequence[Any], moments: Sequence[dt.datetime]) -> None:
        """Go past a row; its timestamp comes with the next row's if there is one."""
        column = self.source.incrementing
        if column is None:
            # the last timestamp that was read whole, unless this row ends its own
            if len(moments) < 2 or moments[0] != moments[1]:
                self.offset = RowOffset(moments[0])
            return
        number = row[self._positions[-1]]
        if not isinstance(number, int | Decimal) or int(number) != number:
            raise ConnectException(f"Column {column} is not an integer")
        self.offset = RowOffset(moments[0] if moments else None, int(number))
