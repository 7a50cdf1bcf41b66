"""Aggregators of which parts can be computed apart and combined: counts, sums, extremes.

Kafka: kstream.internals.KStreamAggregate over a caching store, which combines updates as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        return [aggregate] if self.is_single else [aggregate.get(one) for one in self.functions]

    def _aggregate(self, values: list[Any]) -> Any:
        return values[0] if self.is_single else dict(zip(self.functions, values, strict=True))


def _combined(function: str, one: Any, other: Any) -> Any:
    """Return two partial results as one; None is that of no operand."""
    if one is None or other is None:
        return other if one is None else one
    return _COMBINE[function](one, other)


COUNT: Final = Fold({"count": "count"}, is_single=True)
"""Counts rows."""
