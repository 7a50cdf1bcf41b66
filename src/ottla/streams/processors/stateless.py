"""Processors without state: filter, map, flat map, branch, merge.

Kafka: kstream.internals.{KStreamFilter, KStreamMap, KStreamMapValues, KStreamFlatMap,
KStreamFlatMapValues, KStreamBranch, KStreamPeek, PrintForeachAction, PassThrough}.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.streams.data.records import Record
from ottla.streams.processors.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.streams.dsl.settings import Printed


class Filter(Processor):
    """Keeps records that a function of key and value accepts, or those that it does not."""

    def __init__(self, predicate: Callable[[Any, Any], Any], *, negated: bool = False) -> None:
        self.predicate, self._negated = predicate, negated

    def process(self, record: Record) -> None:
        """Process a record."""
        if bool(self.predicate(record.key, record.value)) != self._negated:
            self.context.forward(record)


class Map(Processor):
    """Replaces key and value by what a function returns."""

    def __init__(self, mapper: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Process a record."""
        key, value = self._mapper(record.key, record.value)
        self.context.forward(Record(key, value, record.timestamp, record.headers))


class MapValues(Processor):
    """Replaces the value."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Process a record."""
        self.context.forward(record.with_value(self._mapper(record.key, record.value)))


class FlatMap(Processor):
    """Replaces a record by any number of keys and values."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Process a record."""
        for key, value in self._mapper(record.key, record.value):
            self.context.forward(Record(key, value, record.timestamp, record.headers))


class FlatMapValues(Processor):
    """Replaces a record by records of the same key."""

    def __init__(self, mapper: Callable[[Any, Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        """Process a record."""
        for value in self._mapper(record.key, record.value):
            self.context.forward(record.with_value(value))


class Peek(Processor):
    """Calls a function, and forwards the record unless it ends here."""

    def __init__(self, action: Callable[[Any, Any], Any], *, forwards: bool = True) -> None:
        self._action, self._forwards = action, forwards

    def process(self, record: Record) -> None:
        """Process a record."""
        self._action(record.key, record.value)
        if self._forwards:
            self.context.forward(record)


def printing(printed: Printed, label: str) -> Callable[[Any, Any], object]:
    """Return a function that prints a record as Kafka's `Printed` does.

    A file is opened for each line, and appended to: several processes may write it.
    """
    mapper = printed.mapper or _key_and_value

    def write(key: Any, value: Any) -> None:
        line = f"[{label}]: {mapper(key, value)}\n"
        if printed.file is None:
            sys.stdout.write(line)
            return
        with Path(printed.file).open("a", encoding="utf-8") as file:
            file.write(line)

    return write


def _key_and_value(key: Any, value: Any) -> str:
    return ", ".join("null" if one is None else str(one) for one in (key, value))


class PassThrough(Processor):
    """Forwards each record."""

    def process(self, record: Record) -> None:
        """Process a record."""
        self.context.forward(record)


class Branch(Processor):
    """Forwards a record to the first branch whose function accepts it."""

    def __init__(self) -> None:
        self.branches: list[tuple[Callable[[Any, Any], Any], str]] = []
        self.default: str | None = None
        self.is_for_all = False
        """Whether each branch has its condition as a column, and takes all records."""

    def add(self, predicate: Any, child: str) -> None:
        """Add a branch and its condition."""
        self.branches.append((predicate, child))

    def process(self, record: Record) -> None:
        """Process a record."""
        if self.is_for_all:
            self.context.forward(record)
            return
        for predicate, child in self.branches:
            if predicate(record.key, record.value):
                self.context.forward(record, child)
                return
        if self.default is not None:
            self.context.forward(record, self.default)


class TableToStream(Processor):
    """Forwards a table's new values."""

    def process(self, record: Record) -> None:
        """Process a change."""
        self.context.forward(record.with_value(record.value.new))
