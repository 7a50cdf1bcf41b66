"""Grouped streams and tables, their aggregations without windows, and cogroups (KIP-150).

Kafka: org.apache.kafka.streams.kstream.{KGroupedStream, KGroupedTable, CogroupedKStream,
TimeWindowedCogroupedKStream, SessionWindowedCogroupedKStream}.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.formats.primitives import Packing
from ottla.streams.columns.expression import ColumnAggregate, fold_of, operands_of
from ottla.streams.data.records import Change
from ottla.streams.data.serdes import Serde, Serdes
from ottla.streams.data.windows import EmitStrategy, SessionWindows
from ottla.streams.dsl.graph import Graph, Part, Typed
from ottla.streams.dsl.settings import Grouped, Materialized, with_value
from ottla.streams.dsl.table import KTable, Rows, is_versioned, stored_table, table_store
from ottla.streams.dsl.windowed import SessionWindowedKStream, WindowedKStream, Windowing, required
from ottla.streams.processors.aggregates import COUNT, StreamAggregate, reducing
from ottla.streams.processors.stateless import PassThrough
from ottla.streams.processors.tables import Regroup, StoreView, TableAggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.windows import SlidingWindows, TimeWindows, UnlimitedWindows
    from ottla.streams.dsl.stream import KStream
    from ottla.streams.processors.aggregates import Fold
    from ottla.streams.processors.processor import Processor
    from ottla.streams.processors.tables import TableView
    from ottla.streams.stores.specs import StoreSpec


_LENGTHS = Packing(">iI")
_AGGREGATE, _REDUCE = "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-"


class KGroupedStream(Part):
    """A stream whose records are grouped by key."""

    def __init__(
        self,
        graph: Graph,
        output: Typed,
        name: str | None,
        *,
        has_new_key: bool,
        stream: KStream,
    ) -> None:
        super().__init__(graph, output)
        self._name, self._has_new_key, self._stream = name, has_new_key, stream

    def count(self, materialized: Materialized | None = None, *, name: str | None = None) -> KTable:
        """Count the records of each key."""
        if materialized is not None and materialized.name is None:
            self.graph.store_name(_AGGREGATE)  # Kafka skips a number here
        return self.add_aggregation(_AGGREGATE, COUNT.empty, COUNT, _counting(materialized), name)

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any] | ColumnAggregate,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Combine the values of each key by a function, or a column's by an aggregate."""
        if isinstance(reducer, ColumnAggregate):
            grouped, fold = self.with_operands({"value": reducer}, is_single=True)
            given = materialized or Materialized()
            return grouped.add_aggregation(_REDUCE, fold.empty, fold, given, name)
        given = with_value(materialized, self.value_serde)
        return self.add_aggregation(_REDUCE, None, reducing(reducer), given, name)

    def aggregate(
        self,
        initializer: Callable[[], Any] | Mapping[str, ColumnAggregate],
        aggregator: Callable[[Any, Any, Any], Any] | None = None,
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the values of each key by a function of key, value and aggregate.

        Or by aggregates of columns: `{"orders": count_rows(), "sum": sum_of(expr("value.price"))}`.
        """
        given = materialized or Materialized()
        grouped = self
        if isinstance(initializer, Mapping):
            grouped, fold = self.with_operands(initializer)
            initializer, aggregator = fold.empty, fold
        return grouped.add_aggregation(_AGGREGATE, initializer, required(aggregator), given, name)

    def with_operands(
        self, aggregates: Mapping[str, ColumnAggregate], *, is_single: bool = False
    ) -> tuple[KGroupedStream, Fold]:
        """Return the stream with what aggregates of columns read as its values."""
        columns = operands_of(aggregates)
        if columns is None:
            return self, fold_of(aggregates, is_single=is_single, operator=None)
        stream = self._stream.map_values(columns)
        made = KGroupedStream(
            self.graph,
            Typed(stream.node, self.key_serde, Serdes.json()),
            self._name,
            has_new_key=self._has_new_key,
            stream=stream,
        )
        return made, fold_of(aggregates, is_single=is_single, operator=stream.operator)

    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
    ) -> Any:
        """Group the records by windows, too."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return WindowedKStream(self, windows)

    def cogroup(self, aggregator: Callable[[Any, Any, Any], Any]) -> CogroupedKStream:
        """Start an aggregation of several grouped streams."""
        return CogroupedKStream(self, aggregator)

    def source_of(self, store: str) -> str:
        """Return the node that an aggregation reads; a new key makes it a repartition topic."""
        if not self._has_new_key:
            return self.node
        return self.graph.repartition(self.output, self._name or store)

    def add_aggregation(
        self,
        prefix: str,
        initializer: Callable[[], Any] | None,
        aggregator: Callable[[Any, Any, Any], Any],
        given: Materialized,
        name: str | None,
    ) -> KTable:
        """Add the processor of an aggregation, and its store."""
        graph = self.graph
        store = given.name or graph.store_name(prefix)
        made = graph.name(prefix, name)
        value = given.value or graph.config.default_value_serde
        output = Typed(made, given.key or self.key_serde, value)
        processor = StreamAggregate(store, initializer, aggregator)
        graph.add(made, processor, self.source_of(store))
        spec = table_store(graph, store, given, output)
        graph.add_store(spec, made)
        return stored_table(graph, output, processor, StoreView(store), spec)


class KGroupedTable(Part):
    """A table whose rows are grouped by another key."""

    def __init__(self, graph: Graph, output: Typed, name: str | None) -> None:
        super().__init__(graph, output)
        self._name = name

    def count(self, materialized: Materialized | None = None, *, name: str | None = None) -> KTable:
        """Count the rows of each group."""
        given = _counting(materialized)
        return self._aggregate("KTABLE-AGGREGATE-", _zero, (_plus_one, _minus_one), given, name)

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Combine the rows of each group; the subtractor takes a row out again."""
        given = with_value(materialized, self.value_serde)
        functions = (reducing(adder), reducing(subtractor))
        return self._aggregate("KTABLE-REDUCE-", None, functions, given, name)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Aggregate the rows of each group; the subtractor takes a row out again."""
        given = materialized or Materialized()
        functions = (adder, subtractor)
        return self._aggregate("KTABLE-AGGREGATE-", initializer, functions, given, name)

    def _aggregate(
        self,
        prefix: str,
        initializer: Callable[[], Any] | None,
        functions: tuple[Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]],
        given: Materialized,
        name: str | None,
    ) -> KTable:
        graph, topology = self.graph, self.graph.topology
        store = given.name or graph.store_name("KTABLE-AGGREGATE-")
        sink = graph.suffixed(name, "-sink", "KSTREAM-SINK-")
        source = graph.suffixed(name, "-source", "KSTREAM-SOURCE-")
        made = graph.name(prefix, name)
        topic = f"{self._name or store}-repartition"
        topology.internal_topics[topic] = None
        serdes = {"key": self.key_serde, "value": change_serde(self.value_serde)}
        topology.add_sink(sink, topic, self.node, **serdes)
        topology.add_source(source, topic, **serdes)
        value = given.value or graph.config.default_value_serde
        output = Typed(made, given.key or self.key_serde, value)
        processor = TableAggregate(store, initializer, *functions)
        graph.add(made, processor, source)
        spec = table_store(graph, store, given, output)
        graph.add_store(spec, made)
        return stored_table(graph, output, processor, StoreView(store), spec)


def grouped_table(
    table: KTable, selector: Callable[[Any, Any], tuple[Any, Any]], grouped: Grouped
) -> KGroupedTable:
    """Return the rows of a table, grouped by the key that a function returns."""
    graph = table.graph
    made = graph.name("KTABLE-SELECT-", grouped.name)
    graph.add(made, Regroup(selector, is_versioned=table.is_versioned), table.node)
    config = graph.config
    key = grouped.key or config.default_key_serde
    value = grouped.value or config.default_value_serde
    return KGroupedTable(graph, Typed(made, key, value), grouped.name)


def change_serde(value: Serde) -> Serde:
    """Return the serde of a change of rows."""

    def write(change: Change) -> bytes:
        new, old = value.serialize(change.new), value.serialize(change.old)
        head = _LENGTHS.pack(-1 if new is None else len(new), old is not None)
        return head + (new or b"") + (old or b"")

    def read(data: bytes) -> Change:
        length, has_old = _LENGTHS.unpack_from(data)
        end = _LENGTHS.size + max(length, 0)
        new = data[_LENGTHS.size : end] if length >= 0 else None
        old = data[end:] if has_old else None
        return Change(value.deserialize(new), value.deserialize(old))

    return Serde(f"change {value.name}", write, read)


def _zero() -> int:
    return 0


def _plus_one(_key: Any, _value: Any, count: int) -> int:
    return count + 1


def _minus_one(_key: Any, _value: Any, count: int) -> int:
    return count - 1


def _counting(materialized: Materialized | None) -> Materialized:
    return with_value(materialized, Serdes.long())


_COGROUP = "COGROUPKSTREAM-AGGREGATE-"
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
        store = given.name or graph.store_name(_COGROUP)
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
            names.append(graph.suffixed(name, f"-cogroup-agg-{number}", _COGROUP))
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
            for processor in processors:
                processor.sends_old_values = True
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
        store = given.name or graph.store_name(_COGROUP)
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
