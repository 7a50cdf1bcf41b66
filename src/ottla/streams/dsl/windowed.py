"""Grouped streams in windows and sessions, and their aggregations.

Kafka: org.apache.kafka.streams.kstream.{TimeWindowedKStream, SessionWindowedKStream}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.streams.columns.expression import ColumnAggregate
from ottla.streams.data.serdes import Serde, Serdes
from ottla.streams.data.windows import EmitStrategy, SessionWindows, SlidingWindows
from ottla.streams.dsl.graph import Part, Typed
from ottla.streams.dsl.settings import Materialized, with_value
from ottla.streams.dsl.table import KTable, stored_table
from ottla.streams.errors import TopologyException
from ottla.streams.processors.aggregates import COUNT, reducing
from ottla.streams.processors.tables import SessionStoreView, WindowStoreView
from ottla.streams.processors.windowed import (
    SessionAggregate,
    SlidingWindowAggregate,
    TimeWindowAggregate,
)
from ottla.streams.stores.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.windows import TimeWindows, UnlimitedWindows
    from ottla.streams.processors.processor import Processor

_AGGREGATE, _REDUCE = "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-"


class Windowing:
    """How windows become stores, processors and serdes."""

    def __init__(self, windows: Any, emit: EmitStrategy) -> None:
        self._windows, self._emit = windows, emit

    @property
    def close_after_ms(self) -> int:
        """How long after its end a window takes records."""
        windows = self._windows
        gap: int = windows.gap_ms if isinstance(windows, SessionWindows) else 0
        grace: int = windows.grace_ms
        return grace + gap

    @property
    def size_ms(self) -> int:
        """The size of a window; of a session its gap."""
        windows = self._windows
        if isinstance(windows, SessionWindows):
            return windows.gap_ms
        if isinstance(windows, SlidingWindows):
            return windows.time_difference_ms
        size: int = windows.size_ms
        return size

    def store(self, name: str, given: Materialized, key: Serde, value: Serde) -> StoreSpec:
        """Return the store of an aggregation; ValueError for a retention that is too short."""
        if given.history_ms is not None or given.max_entries is not None:
            raise TopologyException("a store of windows has no history_ms and no max_entries")
        minimum = min(self.size_ms + self._windows.grace_ms, 2**62)
        if isinstance(self._windows, SlidingWindows):
            minimum = 2 * self.size_ms + self._windows.grace_ms
        retention = minimum if given.retention_ms is None else given.retention_ms
        if retention < self.size_ms + self._windows.grace_ms and given.retention_ms is not None:
            raise ValueError(
                f"The retention period of the window store {name} must be no smaller than its "
                f"window size plus the grace period. Got size=[{self.size_ms}], "
                f"grace=[{self._windows.grace_ms}], retention=[{retention}]"
            )
        kind = "session" if isinstance(self._windows, SessionWindows) else "window"
        return StoreSpec(
            name,
            kind,
            key,
            value,
            retention_ms=retention,
            window_size_ms=self.size_ms,
            is_time_ordered=self._emit.on_close,
        )

    def key_serde(self, key: Serde) -> Serde:
        """Return the serde of windowed keys."""
        if isinstance(self._windows, SessionWindows):
            return Serdes.session_windowed(key)
        return Serdes.time_windowed(key, self.size_ms)

    def view(self, store: str) -> WindowStoreView | SessionStoreView:
        """Return how the rows are read."""
        if isinstance(self._windows, SessionWindows):
            return SessionStoreView(store)
        return WindowStoreView(store)

    def processor(
        self,
        store: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any] | None,
    ) -> Processor:
        """Return the processor of an aggregation."""
        windows = self._windows
        if isinstance(windows, SessionWindows):
            assert merger is not None
            return SessionAggregate(
                store,
                self._emit,
                windows,
                initializer=initializer or _nothing,
                aggregator=aggregator,
                merger=merger,
            )
        kind: Any = (
            SlidingWindowAggregate if isinstance(windows, SlidingWindows) else TimeWindowAggregate
        )
        made: Processor = kind(store, self._emit, windows, initializer, aggregator)
        return made


class _Windowed(Part):
    """Base of grouped streams in windows."""

    def __init__(self, grouped: Any, windows: Any, emit: EmitStrategy | None = None) -> None:
        super().__init__(grouped.graph, grouped.output)
        self._grouped, self._windows = grouped, windows
        self._emit = emit or EmitStrategy.on_window_update()
        self._windowing = Windowing(windows, self._emit)

    def emit_strategy(self, strategy: EmitStrategy) -> Any:
        """Return the same with results on every update or on the window's close."""
        return type(self)(self._grouped, self._windows, strategy)

    def _folded(
        self,
        aggregates: Mapping[str, ColumnAggregate],
        materialized: Materialized | None,
        name: str | None,
        prefix: str = _AGGREGATE,
        *,
        is_single: bool = False,
    ) -> KTable:
        """Aggregate columns: their operands are the values from here on."""
        grouped, fold = self._grouped.with_operands(aggregates, is_single=is_single)
        made = type(self)(grouped, self._windows, self._emit)
        given = materialized or Materialized()
        return made.add_aggregation(prefix, fold.empty, fold, given, merger=fold.merged, name=name)

    def _reduced(
        self, aggregate: ColumnAggregate, materialized: Materialized | None, name: str | None
    ) -> KTable:
        return self._folded({"value": aggregate}, materialized, name, _REDUCE, is_single=True)

    def _counting(self, materialized: Materialized | None) -> Materialized:
        if materialized is not None and materialized.name is None:
            self.graph.store_name(_AGGREGATE)  # Kafka skips a number here
        return with_value(materialized, Serdes.long())

    def add_aggregation(
        self,
        prefix: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        given: Materialized,
        *,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> KTable:
        """Add the processor of an aggregation, and its store."""
        graph, windowing = self.graph, self._windowing
        store = given.name or graph.store_name(prefix)
        made = graph.name(prefix, name)
        key = given.key or self.key_serde
        value = given.value or graph.config.default_value_serde
        processor = windowing.processor(store, initializer, aggregator, merger)
        graph.add(made, processor, self._grouped.source_of(store))
        spec = graph.supplied(windowing.store(store, given, key, value), given.store_type)
        graph.add_store(spec, made)
        return stored_table(
            graph,
            Typed(made, windowing.key_serde(key), value),
            processor,
            windowing.view(store),
            spec,
            close_after_ms=windowing.close_after_ms,
        )


class WindowedKStream(_Windowed):
    """A grouped stream in tumbling, hopping, sliding or unlimited windows."""

    def __init__(
        self,
        grouped: Any,
        windows: TimeWindows | UnlimitedWindows | SlidingWindows,
        emit: EmitStrategy | None = None,
    ) -> None:
        super().__init__(grouped, windows, emit)

    def count(self, materialized: Materialized | None = None, *, name: str | None = None) -> KTable:
        """Count the records of each key and window."""
        given = self._counting(materialized)
        return self.add_aggregation(_AGGREGATE, COUNT.empty, COUNT, given, name=name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any] | ColumnAggregate,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Combine the values of each key and window by a function, or by an aggregate."""
        if isinstance(reducer, ColumnAggregate):
            return self._reduced(reducer, materialized, name)
        given = with_value(materialized, self.value_serde)
        return self.add_aggregation(_REDUCE, None, reducing(reducer), given, name=name)

    def aggregate(
        self,
        initializer: Callable[[], Any] | Mapping[str, ColumnAggregate],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key and window by a function, or by aggregates."""
        if isinstance(initializer, Mapping):
            return self._folded(initializer, materialized, name)
        given = materialized or Materialized()
        return self.add_aggregation(_AGGREGATE, initializer, required(aggregator), given, name=name)


class SessionWindowedKStream(_Windowed):
    """A grouped stream in sessions."""

    def count(self, materialized: Materialized | None = None, *, name: str | None = None) -> KTable:
        """Count the records of each key and session."""
        given = self._counting(materialized)
        return self.add_aggregation(
            _AGGREGATE, COUNT.empty, COUNT, given, merger=COUNT.merged, name=name
        )

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any] | ColumnAggregate,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Combine the values of each key and session by a function, or by an aggregate."""
        if isinstance(reducer, ColumnAggregate):
            return self._reduced(reducer, materialized, name)
        given = with_value(materialized, self.value_serde)

        def merge(_key: Any, first: Any, second: Any) -> Any:
            return second if first is None else reducer(first, second)

        return self.add_aggregation(
            _REDUCE, None, reducing(reducer), given, merger=merge, name=name
        )

    def aggregate(
        self,
        initializer: Callable[[], Any] | Mapping[str, ColumnAggregate],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        merger: Callable[[Any, Any, Any], Any] | None = None,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key and session; the merger joins two sessions."""
        if isinstance(initializer, Mapping):
            return self._folded(initializer, materialized, name)
        given = materialized or Materialized()
        return self.add_aggregation(
            _AGGREGATE,
            initializer,
            required(aggregator),
            given,
            merger=required(merger),
            name=name,
        )


def _nothing() -> None:
    return None


def required(function: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function of an aggregation; TypeError without one."""
    if function is None:
        raise TypeError("aggregate needs its functions, or aggregates of columns by name")
    return function
