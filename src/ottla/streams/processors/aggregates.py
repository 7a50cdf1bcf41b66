"""Aggregations of streams by key, and aggregators whose parts can be computed apart.

Kafka: kstream.internals.{KStreamAggregate, KStreamReduce}; a caching store combines updates, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.streams.processors.tables import TableProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.streams.data.records import Record


_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "count": lambda one, other: one + other,
    "sum": lambda one, other: one + other,
    "min": min,
    "max": max,
}


class Fold:
    """Counts rows and combines operands, which values hold by name; it is an aggregator, too."""

    def __init__(
        self, functions: Mapping[str, str], *, is_single: bool = False, operator: Any = None
    ) -> None:
        """Take a function for each name; a single one makes values instead of a dict of them.

        `operator` is the processor whose columns make the operands.
        """
        self.functions = dict(functions)
        self.is_single = is_single
        self.operator = operator

    @property
    def operands(self) -> list[str]:
        """The names that values must hold."""
        return [name for name, function in self.functions.items() if function != "count"]

    def empty(self) -> Any:
        """Return the aggregate of no rows."""
        return self._aggregate(
            [0 if function == "count" else None for function in self.functions.values()]
        )

    def __call__(self, _key: Any, value: Any, aggregate: Any) -> Any:
        """Return the aggregate with another row."""
        given = value if self.operands and value is not None else {}
        part = [
            1 if function == "count" else given.get(name)
            for name, function in self.functions.items()
        ]
        return self.combined(aggregate, part)

    def combined(self, aggregate: Any, part: Sequence[Any]) -> Any:
        """Return the aggregate with a part: a number or None for each function."""
        return self._aggregate(self.joined(self._values(aggregate), part))

    def joined(self, part: Sequence[Any], other: Sequence[Any]) -> list[Any]:
        """Return two parts as one."""
        return [
            _combined(function, *both)
            for function, *both in zip(self.functions.values(), part, other, strict=True)
        ]

    def merged(self, _key: Any, first: Any, second: Any) -> Any:
        """Return the aggregate of two sessions."""
        return self.combined(first, self._values(second))

    def _values(self, aggregate: Any) -> list[Any]:
        """Return a value for each function; None for one that a restart has added."""
        return (
            [aggregate]
            if self.is_single
            else [aggregate.get(function) for function in self.functions]
        )

    def _aggregate(self, values: list[Any]) -> Any:
        return values[0] if self.is_single else dict(zip(self.functions, values, strict=True))


def _combined(function: str, one: Any, other: Any) -> Any:
    """Return two partial results as one; None is that of no operand."""
    if one is None or other is None:
        return other if one is None else one
    return _COMBINE[function](one, other)


COUNT: Final = Fold({"count": "count"}, is_single=True)
"""Counts rows."""


class StreamAggregate(TableProcessor):
    """Aggregates the values of each key; without an initializer the first one is the aggregate."""

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._initializer, self._aggregator = initializer, aggregator

    @property
    def fold(self) -> Fold | None:
        """The aggregator, if its parts can be combined."""
        return fold_of(self._aggregator)

    def process(self, record: Record) -> None:
        """Process a record."""
        if record.key is None or record.value is None:
            self.context.drop("null key or value of an aggregation")
            return
        functions = (self._initializer, self._aggregator)
        self._update(record, lambda old: aggregated(*functions, record, old))

    def combine(self, record: Record, _start: int, part: Sequence[Any]) -> None:
        """Process what records of a key make together."""
        self._update(record, lambda old: combined(self.fold, old, part))

    def _update(self, record: Record, aggregate: Callable[[Any], Any]) -> None:
        found = self._store.get(record.key)
        timestamp = record.timestamp
        if found is not None:
            timestamp = max(timestamp, found.timestamp)
        old = None if found is None else found.value
        self.update(record.with_timestamp(timestamp), aggregate(old), old)


def fold_of(aggregator: Any) -> Fold | None:
    """Return an aggregator whose parts can be combined."""
    return aggregator if isinstance(aggregator, Fold) else None


def combined(fold: Fold | None, old: Any, part: Sequence[Any]) -> Any:
    """Return the aggregate with a part."""
    assert fold is not None
    return fold.combined(fold.empty() if old is None else old, part)


def aggregated(
    initializer: Callable[[], Any] | None,
    aggregator: Callable[[Any, Any, Any], Any],
    record: Record,
    old: Any,
) -> Any:
    """Return the aggregate after a record."""
    if old is None:
        if initializer is None:
            return record.value
        old = initializer()
    return aggregator(record.key, record.value, old)


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return an aggregator for a function of the aggregate and a value."""
    return lambda _, value, aggregate: value if aggregate is None else reducer(aggregate, value)
