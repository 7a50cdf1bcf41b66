"""KTable and GlobalKTable: the latest value of each key.

Kafka: org.apache.kafka.streams.kstream.{KTable, GlobalKTable}.

A table without a named store has one only if a reader needs it (`view`, `send_old_values`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.streams.data.serdes import Serdes
from ottla.streams.dsl.graph import Graph, Part, Typed, with_key
from ottla.streams.dsl.settings import Grouped, Materialized, Suppressed, TableJoined
from ottla.streams.errors import TopologyException
from ottla.streams.processors.joins import JoinedView, JoinMerge, TableJoin
from ottla.streams.processors.stateless import TableToStream
from ottla.streams.processors.suppress import Suppress, SuppressedView, buffer_serde
from ottla.streams.processors.tables import (
    ComputedView,
    StoreView,
    TableFilter,
    TableMap,
    TableProcessor,
    TableSource,
    TableTransform,
    TransformedView,
    filtering,
    mapping,
)
from ottla.streams.stores.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.serdes import Serde
    from ottla.streams.dsl.grouped import KGroupedTable
    from ottla.streams.dsl.stream import KStream
    from ottla.streams.processors.processor import ValueTransformer
    from ottla.streams.processors.tables import TableView


_TRANSFORM: Final = "KTABLE-TRANSFORMVALUES-"


class GlobalKTable(NamedTuple):
    """A table that every task has as a whole, by the name of its store."""

    store: str
    key_serde: Serde
    value_serde: Serde

    @property
    def queryable_store_name(self) -> str:
        """The name of the store."""
        return self.store


@dataclass
class Rows:
    """How a table's rows are read, and how its processors are made to send old values."""

    view: Callable[[], TableView]
    send_old_values: Callable[[bool], bool]
    """With False a table gets no store for it; returns whether it sends them."""
    store: str | None = None
    close_after_ms: int | None = None
    """For windowed tables: how long after its end a window takes records."""
    is_versioned: bool = False


class KTable(Part):
    """The latest value of each key; each method adds to the topology."""

    def __init__(self, graph: Graph, output: Typed, rows: Rows) -> None:
        super().__init__(graph, output)
        self._rows = rows

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the table's store, if it has one."""
        return self._rows.store

    @property
    def is_versioned(self) -> bool:
        """Whether the table answers as of an earlier time."""
        return self._rows.is_versioned

    def view(self) -> TableView:
        """Return how the rows are read; a table without a store may get one."""
        return self._rows.view()

    def send_old_values(self, *, force: bool = True) -> bool:
        """Make the changes have their old values; without force only if that needs no store."""
        return self._rows.send_old_values(force)

    def filter(
        self,
        predicate: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Keep the rows that a function of key and value accepts."""
        return self._filter(filtering(predicate, negated=False), materialized, name)

    def filter_not(
        self,
        predicate: Callable[[Any, Any], Any],
        materialized: Materialized | None = None,
        *,
        name: str | None = None,
    ) -> KTable:
        """Drop the rows that a function of key and value accepts."""
        return self._filter(filtering(predicate, negated=True), materialized, name)

    def _filter(
        self,
        compute: Callable[[Any, Any], Any],
        materialized: Materialized | None,
        name: str | None,
    ) -> KTable:
        return self._computed(
            "KTABLE-FILTER-",
            lambda store: TableFilter(compute, store, is_versioned=self.is_versioned),
            lambda parent: ComputedView(parent, compute),
            materialized,
            name,
            keeps_value=True,
        )

    def map_values(
        self,
        mapper: Callable[..., Any],
        *,
        with_key: bool = False,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable:
        """Replace each value by a function of it, or of key and value."""
        compute = mapping(_keyed(mapper, with_key))
        return self._computed(
            "KTABLE-MAPVALUES-",
            lambda store: TableMap(compute, store),
            lambda parent: ComputedView(parent, compute),
            materialized,
            name,
        )

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer],
        *stores: str,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable:
        """Replace each value by what a transformer of one's own returns; stores by name."""

        def make(store: str | None) -> TableMap:
            return TableTransform(supplier, store)

        def view(parent: TableView) -> TableView:
            return TransformedView(parent, supplier)

        made = self._computed(_TRANSFORM, make, view, materialized, name)
        self.graph.topology.connect_processor_and_state_stores(made.node, *stores)
        return made

    def to_stream(
        self, key_mapper: Callable[[Any, Any], Any] | None = None, *, name: str | None = None
    ) -> KStream:
        """Return the table's changes as a stream; a function may give them other keys."""
        from ottla.streams.dsl.stream import KStream

        made = self.graph.name("KTABLE-TOSTREAM-", name)
        self.graph.add(made, TableToStream(), self.node)
        stream = KStream(self.graph, self.output._replace(node=made))
        return stream if key_mapper is None else stream.select_key(key_mapper)

    def suppress(self, suppressed: Suppressed) -> KTable:
        """Hold back intermediate updates."""
        if self.is_versioned:
            raise TopologyException("suppress() is only supported for non-versioned KTables")
        graph, rows = self.graph, self._rows
        name = suppressed.name or graph.name("KTABLE-SUPPRESS-")  # Kafka counts no given one
        store = (
            graph.store_name("KTABLE-SUPPRESS-")
            if suppressed.name is None
            else f"{suppressed.name}-store"
        )
        wait_ms = suppressed.limit_ms
        if wait_ms is None:
            if rows.close_after_ms is None:
                raise TypeError("until_window_closes needs a windowed table")
            wait_ms = rows.close_after_ms
        is_final = suppressed.limit_ms is None
        self.send_old_values()  # the buffer keeps what readers have seen
        serdes = (self.key_serde, self.value_serde)
        processor = Suppress(store, suppressed, serdes, wait_ms, is_final=is_final)
        value = buffer_serde(self.value_serde)
        spec = StoreSpec(store, "key-value", Serdes.bytes(), value, has_timestamps=False)
        graph.add_store(spec)
        graph.add(name, processor, self.node, stores=[store])
        made = Rows(
            lambda: SuppressedView(store, self.view(), self.key_serde),
            self._rows.send_old_values,
            close_after_ms=rows.close_after_ms,
        )
        return KTable(graph, self.output._replace(node=name), made)

    def group_by(
        self, selector: Callable[[Any, Any], tuple[Any, Any]], grouped: Grouped | None = None
    ) -> KGroupedTable:
        """Group the rows by a key that a function returns with the value."""
        from ottla.streams.dsl.grouped import grouped_table

        self.send_old_values()
        return grouped_table(self, selector, grouped or Grouped())

    def join(
        self,
        other: KTable,
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[[Any, Any], Any] | None = None,
        **options: Any,
    ) -> KTable:
        """Join with the rows of the same key, or of the key that `foreign_key` returns.

        Options: materialized, name, and for a foreign key table_joined.
        """
        if foreign_key is not None:
            return self._foreign_key_join(other, joiner, foreign_key, is_left=False, **options)
        return self._join(other, joiner, is_left=False, is_outer=False, **options)

    def left_join(
        self,
        other: KTable,
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[[Any, Any], Any] | None = None,
        **options: Any,
    ) -> KTable:
        """Join, and keep rows of this table without a partner."""
        if foreign_key is not None:
            return self._foreign_key_join(other, joiner, foreign_key, is_left=True, **options)
        return self._join(other, joiner, is_left=True, is_outer=False, **options)

    def outer_join(
        self, other: KTable, joiner: Callable[[Any, Any], Any], **options: Any
    ) -> KTable:
        """Join, and keep the rows of both tables without a partner."""
        return self._join(other, joiner, is_left=True, is_outer=True, **options)

    def _foreign_key_join(
        self,
        other: KTable,
        joiner: Callable[[Any, Any], Any],
        foreign_key: Callable[[Any, Any], Any],
        *,
        is_left: bool,
        materialized: Materialized | None = None,
        table_joined: TableJoined | None = None,
    ) -> KTable:
        from ottla.streams.dsl.joins import join_by_foreign_key

        other.send_old_values()
        self.send_old_values()
        joined = table_joined or TableJoined()
        made = join_by_foreign_key(self, other, joiner, foreign_key, given=joined, is_left=is_left)
        name, given = joined.name, materialized or Materialized()
        result = self.graph.suffixed(name, "-result", "KTABLE-FK-JOIN-OUTPUT-")
        store = given.name or self.graph.store_name("KTABLE-FK-JOIN-OUTPUT-")
        key = given.key or self.key_serde
        value = given.value or self.graph.config.default_value_serde
        output = Typed(made, key, value)
        spec = table_store(self.graph, store, given, output)
        is_stored = given.name is not None
        return source_table(self.graph, output, result, spec, is_stored=is_stored)

    def _join(
        self,
        other: KTable,
        joiner: Callable[[Any, Any], Any],
        *,
        is_left: bool,
        is_outer: bool,
        materialized: Materialized | None = None,
        name: str | None = None,
    ) -> KTable:
        graph = self.graph
        if materialized is not None and materialized.name is None:  # Kafka counts it first
            materialized = replace(materialized, name=graph.store_name("KTABLE-MERGE-"))
        merge = graph.name("KTABLE-MERGE-", name)
        graph.topology.joined.append((self.node, other.node))
        if is_left:
            self.send_old_values()
        if is_outer:
            other.send_old_values()
        output, store = self._materialized(merge, materialized)
        names = [
            graph.suffixed(name, "-join-this", "KTABLE-JOINTHIS-"),
            graph.suffixed(name, "-join-other", "KTABLE-JOINOTHER-"),
        ]
        left, right = self.view(), other.view()
        needs_left, needs_right = not is_outer, not is_left
        sides = [
            TableJoin(
                right,
                joiner,
                needs_other=needs_right,
                needs_own=needs_left,
                is_versioned=self.is_versioned,
            ),
            TableJoin(
                left,
                lambda own, found: joiner(found, own),
                needs_other=needs_left,
                needs_own=needs_right,
                is_versioned=other.is_versioned,
            ),
        ]
        graph.add(names[0], sides[0], self.node, stores=right.stores())
        graph.add(names[1], sides[1], other.node, stores=left.stores())
        processor = JoinMerge(None if store is None else store.name)
        graph.add(merge, processor, *names)
        if store is not None:
            graph.add_store(store, merge)

        def send_old_values(_: bool) -> bool:  # noqa: FBT001 - a callback
            self.send_old_values()
            other.send_old_values()
            processor.sends_old_values = True
            for side in sides:
                side.sends_old_values = True
            return True

        def view() -> TableView:
            if store is not None:
                return StoreView(store.name)
            return JoinedView(left, right, joiner, needs_left=needs_left, needs_right=needs_right)

        rows = Rows(
            view,
            send_old_values,
            None if store is None else store.name,
            is_versioned=is_versioned(store),
        )
        return KTable(graph, output, rows)

    def _computed(
        self,
        prefix: str,
        make: Callable[[str | None], TableMap],
        view_of: Callable[[TableView], TableView],
        materialized: Materialized | None,
        name: str | None,
        *,
        keeps_value: bool = False,
    ) -> KTable:
        """Return a table whose rows a processor computes; `view_of` reads them without a store."""
        graph = self.graph
        if materialized is not None and materialized.name is None and prefix != _TRANSFORM:
            graph.store_name(prefix)
        made = graph.name(prefix, name)
        value = self.value_serde if keeps_value else graph.config.default_value_serde
        given = materialized or Materialized()
        output = Typed(made, given.key or self.key_serde, given.value or value)
        store = None if given.name is None else table_store(graph, given.name, given, output)
        processor = make(None if store is None else store.name)
        graph.add(made, processor, self.node)
        if store is not None:
            graph.add_store(store, made)
        if keeps_value:  # so that no deletion of what was never there is forwarded
            processor.sends_old_values = self.send_old_values(force=False)

        def send_old_values(force: bool) -> bool:  # noqa: FBT001 - a callback
            if store is not None or self.send_old_values(force=force):
                processor.sends_old_values = True
            return processor.sends_old_values

        def view() -> TableView:
            if store is not None:
                return StoreView(store.name)
            return view_of(self.view())

        rows = Rows(
            view,
            send_old_values,
            None if store is None else store.name,
            self._rows.close_after_ms,
            is_versioned=self.is_versioned if store is None else is_versioned(store),
        )
        return KTable(graph, output, rows)

    def _materialized(
        self, node: str, materialized: Materialized | None
    ) -> tuple[Typed, StoreSpec | None]:
        """Return a new table's output and its store, if it has one."""
        value = self.graph.config.default_value_serde
        if materialized is None:
            return Typed(node, self.key_serde, value), None
        output = Typed(node, materialized.key or self.key_serde, materialized.value or value)
        assert materialized.name is not None
        return output, table_store(self.graph, materialized.name, materialized, output)


def table_store(graph: Graph, name: str, given: Materialized, output: Typed) -> StoreSpec:
    """Return the store of a table without windows."""
    serdes = (given.key or output.key, given.value or output.value)
    if given.history_ms is not None:
        if given.max_entries is not None:
            raise TopologyException(f"the versioned store {name} has no max_entries")
        return StoreSpec(name, "versioned", *serdes, retention_ms=given.history_ms)
    spec = StoreSpec(name, "key-value", *serdes, max_entries=given.max_entries)
    return spec if given.max_entries is not None else graph.supplied(spec, given.store_type)


def is_versioned(spec: StoreSpec | None) -> bool:
    """Whether there is a store, and it answers as of an earlier time."""
    return spec is not None and spec.kind == "versioned"


def stored_table(
    graph: Graph,
    output: Typed,
    processor: Any,
    view: TableView,
    spec: StoreSpec,
    *,
    close_after_ms: int | None = None,
) -> KTable:
    """Return a table whose processor keeps its rows in a store."""

    def send_old_values(_: bool) -> bool:  # noqa: FBT001 - a callback
        processor.sends_old_values = True
        return True

    rows = Rows(
        lambda: view, send_old_values, spec.name, close_after_ms, is_versioned=is_versioned(spec)
    )
    return KTable(graph, output, rows)


def source_table(
    graph: Graph, parent: Typed, name: str, spec: StoreSpec, *, is_stored: bool
) -> KTable:
    """Return the table of a stream's records; it is stored at once, or when a reader needs it."""
    processor: TableProcessor = TableSource(None)
    graph.add(name, processor, parent.node)

    def view() -> TableView:
        if processor.store_name is None:
            processor.store_name = spec.name
            graph.add_store(spec, name)
        return StoreView(spec.name)

    def send_old_values(force: bool) -> bool:  # noqa: FBT001 - a callback
        if not force and processor.store_name is None:
            return False
        view()
        processor.sends_old_values = True
        return True

    if is_stored or is_versioned(spec):
        view()
    rows = Rows(view, send_old_values, spec.name, is_versioned=is_versioned(spec))
    return KTable(graph, parent._replace(node=name), rows)


def _keyed(function: Callable[..., Any], has_key: bool) -> Callable[..., Any]:  # noqa: FBT001 - passed on
    return with_key(function, has_key=has_key)
