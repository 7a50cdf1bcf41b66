"""Aggregations of several grouped streams into one table.

Kafka: org.apache.kafka.streams.kstream.{CogroupedKStream, TimeWindowedCogroupedKStream,
SessionWindowedCogroupedKStream} (KIP-150).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.graph import Typed
from ottla.streams.dsl.table import KTable, Rows, is_versioned, table_store
from ottla.streams.dsl.windowed import Windowing
from ottla.streams.processors.aggregates import StreamAggregate
from ottla.streams.processors.stateless import PassThrough
from ottla.streams.processors.tables import StoreView
from ottla.streams.settings import Materialized
from ottla.streams.windows import EmitStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.dsl.grouped import KGroupedStream
    from ottla.streams.processor import Processor
    from ottla.streams.processors.tables import TableView
    from ottla.streams.stores.specs import StoreSpec
    from ottla.streams.windows import SessionWindows, SlidingWindows, TimeWindows

_STORE, _AGGREGATE = "COGROUPKSTREAM-AGGREGATE-", "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"


class CogroupedKStream:
    """Grouped streams, each with its aggregator."""

    def __init__(self, grouped: KGroupedStream, aggregator: Callable[[Any, Any, Any], Any]) -> None:
        self._members = [(grouped, aggregator)]

    def cogroup(
        self, grouped: KGroupedStream, aggregator: Callable[[Any, Any, Any], Any]
    ) -> CogroupedKStream:
        """Add a grouped stream."""
        self._members.append((grouped, aggregator))
        return self

    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> WindowedCogroupedKStream:
        """Aggregate by windows, too."""
        return WindowedCogroupedKStream(self, windows)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key."""
        given = materialized or Materialized()
        first = self._members[0][0]
        graph = first.graph
        store = given.name or graph.store_name(_STORE)
        value = given.value or graph.config.default_value_serde
        made = self.add_nodes(
            store, name, lambda aggregator: StreamAggregate(store, initializer, aggregator)
        )
        output = Typed(made[0], given.key or first.key_serde, value)
        spec = table_store(graph, store, given, output)
        graph.add_store(spec, *made[1])
        return self.table(output, StoreView(store), spec, made[2])

    def add_nodes(
        self,
        store: str,
        name: str | None,
        make: Callable[[Callable[[Any, Any, Any], Any]], Processor],
    ) -> tuple[str, list[str], list[Any]]:
        """Add an aggregation for each member; return the last node, all names, all processors."""
        graph = self._members[0][0].graph
        sources = [grouped.source_of(store) for grouped, _ in self._members]
        graph.topology.joined.append(tuple(sources))
        names, processors = [], []
        for number, (_, aggregator) in enumerate(self._members):
            names.append(graph.suffixed(name, f"-cogroup-agg-{number}", _AGGREGATE))
            processors.append(make(aggregator))
            graph.add(names[-1], processors[-1], sources[number])
        merge = graph.suffixed(name, "-cogroup-merge", _MERGE)
        graph.add(merge, PassThrough(), *names)
        return merge, names, processors

    def table(
        self,
        output: Typed,
        view: TableView,
        spec: StoreSpec,
        processors: list[Any],
        close_after_ms: int | None = None,
    ) -> KTable:
        """Return the table of an aggregation."""

        def send_old_values(_: bool) -> bool:  # noqa: FBT001 - a callback
            for one in processors:
                one.sends_old_values = True
            return True

        rows = Rows(
            lambda: view,
            send_old_values,
            spec.name,
            close_after_ms,
            is_versioned=is_versioned(spec),
        )
        return KTable(self.graph, output, rows)

    @property
    def graph(self) -> Any:
        """The graph that the streams belong to."""
        return self._members[0][0].graph

    @property
    def key_serde(self) -> Any:
        """The serde of the keys."""
        return self._members[0][0].key_serde


class WindowedCogroupedKStream:
    """Grouped streams in windows or sessions."""

    def __init__(
        self, cogrouped: CogroupedKStream, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> None:
        self._cogrouped = cogrouped
        self._windowing = Windowing(windows, EmitStrategy.on_window_update())

    def aggregate(
        self,
        initializer: Callable[[], Any],
        merger: Callable[[Any, Any, Any], Any] | None = None,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key and window; sessions need a merger."""
        given = materialized or Materialized()
        cogrouped, windowing = self._cogrouped, self._windowing
        graph = cogrouped.graph
        store = given.name or graph.store_name(_STORE)
        key = given.key or cogrouped.key_serde
        value = given.value or graph.config.default_value_serde
        merge, names, processors = cogrouped.add_nodes(
            store,
            name,
            lambda aggregator: windowing.processor(store, initializer, aggregator, merger),
        )
        spec = graph.supplied(windowing.store(store, given, key, value), given.store_type)
        graph.add_store(spec, *names)
        output = Typed(merge, windowing.key_serde(key), value)
        view = windowing.view(store)
        return cogrouped.table(output, view, spec, processors, windowing.close_after_ms)
