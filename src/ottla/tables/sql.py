"""SQL over topics by DuckDB: which topics, columns and offsets a statement reads.

DuckDB parses the statement, and its tree is looked at: a statement of one topic passes its columns,
and its limits by partition, offset and time, on to the scan. DuckDB applies all conditions itself,
too, so what is not understood here is only slower. Topics are registered as objects: no text of
theirs becomes SQL.

Kafka: none.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.tables.table_scan import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.tables.table_scan import Scan

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,  # nothing is fetched when a statement names one
    "autoload_known_extensions": False,
}
ROWS_AT_ONCE: Final = 10_000
_BARE_OFFSET: Final = re.compile(r'(?<![".\w])offset\b(?!")', re.IGNORECASE)
_TIME_TYPES: Final = ("timestamp", "timestamptz", "date")
"""Of constants: a date loses the hours of its text, a timestamp its zone."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_REVERSED: Final = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_EQUAL": "COMPARE_EQUAL",
}


@dataclass
class TopicReads:
    """What a statement reads of a topic, as arguments of `scan`."""

    columns: set[str] | None = None
    """The columns that it names; None for all."""
    limits: dict[str, Any] = field(default_factory=dict)
    """start_offset, end_offset, start_time, end_time, partitions."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments; a name that is no column of records is a field of the value."""
        if self.columns is None:
            return dict(self.limits)
        named = {name if name in COLUMNS else "value" for name in self.columns}
        return {**self.limits, "columns": [name for name in COLUMNS if name in named] or ["offset"]}

    def raise_to(self, name: str, value: int) -> None:
        """Set a lower limit to at least a value."""
        self.limits[name] = max(self.limits.get(name, value), value)

    def lower_to(self, name: str, value: int) -> None:
        """Set an upper limit to at most a value."""
        self.limits[name] = min(self.limits.get(name, value), value)


def execute(
    statement: str, open_scan: Callable[[str, dict[str, Any]], Scan]
) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Run a SELECT; return the names of its columns and its rows.

    open_scan gets a topic and further arguments of its scan. KafkaError INVALID_CONFIG for a
    statement that is none or fails, also of the rows, and what open_scan raises.
    """
    import duckdb

    connection = duckdb.connect(config=_SETTINGS)
    try:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        for topic, reads in topics_of(connection, statement).items():
            try:
                found = open_scan(topic, reads.arguments())
            except KafkaError:
                if Path(topic).is_file():  # DuckDB reads it
                    continue
                raise
            connection.register(topic, found)
        result = connection.execute(statement)
        return [column[0] for column in result.description], _rows(result, duckdb.Error)
    except duckdb.Error as error:
        raise _one_line(str(error), statement) from error


def _rows(result: Any, failure: type[Exception]) -> Iterator[tuple[Any, ...]]:
    try:
        while rows := result.fetchmany(ROWS_AT_ONCE):
            yield from rows
    except failure as error:
        raise _one_line(str(error)) from error


def topics_of(connection: Any, statement: str) -> dict[str, TopicReads]:
    """Return what a SELECT reads; KafkaError INVALID_CONFIG for other statements."""
    parsed = connection.execute("SELECT json_serialize_sql(?::varchar)", [statement]).fetchall()
    tree = json.loads(parsed[0][0])
    if tree["error"]:
        raise _one_line(tree["error_message"], statement)
    nodes = [one["node"] for one in tree["statements"]]
    if len(nodes) != 1:
        raise _one_line("give one SELECT")
    objects = list(_objects(nodes))
    common = {
        entry["key"] for one in objects for entry in (one.get("cte_map") or {}).get("map", ())
    }
    tables = [one for one in objects if one.get("type") == "BASE_TABLE"]
    found = {one["table_name"]: TopicReads() for one in tables if one["table_name"] not in common}
    source = nodes[0].get("from_table") or {}
    is_renamed = bool(source.get("column_name_alias"))  # from orders as o(a, b)
    is_table = source.get("type") == "BASE_TABLE" and not is_renamed
    if len(tables) == 1 and is_table and len(found) == 1:
        names = {source["table_name"].lower(), source["alias"].lower()}
        reads = found[source["table_name"]]
        reads.columns = _columns(objects, names)
        limits = _Limits(connection, reads, names)
        for condition in _conjuncts(nodes[0].get("where_clause")):
            limits.add(condition)
    return found


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    pending = [tree]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield one
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)


def _columns(objects: list[dict[str, Any]], tables: set[str]) -> set[str] | None:
    """Return the columns that expressions name; None for all, as a position or a row needs."""
    if any(one.get("class") in ("STAR", "POSITIONAL_REFERENCE") for one in objects):
        return None
    references = [_names(one) for one in objects if one.get("class") == "COLUMN_REF"]
    if any(len(names) == 1 and names[0] in tables for names in references):
        return None
    return {names[1] if len(names) > 1 and names[0] in tables else names[0] for names in references}


def _names(reference: dict[str, Any]) -> list[str]:
    """Return the parts of a column's name, in which SQL does not tell upper case from lower."""
    return [name.lower() for name in reference["column_names"]]


def _conjuncts(condition: Any) -> Iterator[dict[str, Any]]:
    if condition and condition.get("type") == "CONJUNCTION_AND":
        for one in condition["children"]:
            yield from _conjuncts(one)
    elif condition:
        yield condition


class _Limits:
    """Takes conditions that compare a column with a constant into the limits of a topic."""

    def __init__(self, connection: Any, reads: TopicReads, tables: set[str]) -> None:
        """Take the names of the topic in the statement."""
        self._connection = connection
        self._reads = reads
        self._tables = tables

    def add(self, condition: dict[str, Any]) -> None:
        """Take a condition; one that is not understood changes nothing."""
        if condition.get("class") == "BETWEEN":
            column = condition["input"]
            self._compare(column, "COMPARE_GREATERTHANOREQUALTO", condition["lower"])
            self._compare(column, "COMPARE_LESSTHANOREQUALTO", condition["upper"])
        elif condition.get("class") == "COMPARISON" and condition["type"] in _REVERSED:
            left, right = condition["left"], condition["right"]
            self._compare(left, condition["type"], right)
            self._compare(right, _REVERSED[condition["type"]], left)

    def _compare(self, column: dict[str, Any], comparison: str, constant: dict[str, Any]) -> None:
        if column.get("class") != "COLUMN_REF":
            return
        names = _names(column)
        is_field = len(names) > 2 or (len(names) == 2 and names[0] not in self._tables)
        name = names[-1]
        if is_field or name not in ("partition", "offset", "timestamp"):
            return
        value = self._constant(name, constant)
        if value is None:
            return
        if name == "partition":
            if comparison == "COMPARE_EQUAL":
                self._reads.limits["partitions"] = [value]
            return
        kind = "time" if name == "timestamp" else "offset"
        if comparison in ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", "COMPARE_EQUAL"):
            self._reads.raise_to(f"start_{kind}", value)  # DuckDB leaves out the one that > does
        if comparison in ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_EQUAL"):
            self._reads.lower_to(f"end_{kind}", value + 1)

    def _constant(self, column: str, node: dict[str, Any]) -> int | None:
        """Return a constant as an offset, or as ms of a time; None for another expression."""
        kind = "timestamptz"
        if node.get("class") == "CAST":
            kind = str((node.get("type_expr") or {}).get("type_name")).lower()
            if column != "timestamp" or kind not in _TIME_TYPES:
                return None
            node = node.get("child") or {}
        if node.get("class") != "CONSTANT":
            return None
        literal = node.get("literal") or {}
        text = str(literal.get("text", (node.get("value") or {}).get("value")))
        if column != "timestamp":
            return int(text) if _INTEGER.fullmatch(text) else None
        query = f"SELECT epoch_ms(try_cast(try_cast(?::varchar AS {kind}) AS timestamptz))"
        rows = self._connection.execute(query, [text]).fetchall()
        return None if rows[0][0] is None else int(rows[0][0])


def _one_line(text: str, statement: str = "") -> KafkaError:
    """Return the error of a statement in one line, with a hint for a column's name.

    DuckDB has of an error of a scan the traceback, whose last line is its class and text.
    """
    if "Traceback (most recent call last)" in text:
        text = text.rstrip().splitlines()[-1].partition(": ")[2]
    line = " ".join(text.split("LINE 1:", maxsplit=1)[0].split())
    if "syntax error" in line and _BARE_OFFSET.search(statement):
        line += ': offset is a word of SQL, so write the column as "offset" in double quotes'
    return KafkaError(ErrorCode.INVALID_CONFIG, line)
