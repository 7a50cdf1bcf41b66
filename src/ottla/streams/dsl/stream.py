"""KStream: a stream of records.

Kafka: org.apache.kafka.streams.kstream.KStream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.columns.expression import is_column
from ottla.streams.columns.operators import ColumnOperator, Step, TypedInput
from ottla.streams.data.serdes import Serdes, has_columns
from ottla.streams.dsl.branched import BranchedKStream
from ottla.streams.dsl.graph import Graph, Part, Typed, with_key
from ottla.streams.dsl.grouped import KGroupedStream
from ottla.streams.dsl.joins import join_streams
from ottla.streams.dsl.settings import (
    Grouped,
    Joined,
    Materialized,
    Printed,
    Produced,
    Repartitioned,
    StreamJoined,
)
from ottla.streams.dsl.table import GlobalKTable, KTable, source_table, table_store
from ottla.streams.errors import TopologyException
from ottla.streams.processors.joins import StreamTableJoin, WaitingStreamTableJoin
from ottla.streams.processors.processor import Processor
from ottla.streams.processors.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    PassThrough,
    Peek,
    printing,
)
from ottla.streams.processors.suppress import buffer_serde
from ottla.streams.processors.tables import FixedKeySupplier, StoreView
from ottla.streams.stores.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.streams.columns.expression import Columns
    from ottla.streams.data.serdes import Serde
    from ottla.streams.data.windows import JoinWindows
    from ottla.streams.processors.tables import TableView


class KStream(Part):
    """A stream of records; each method adds to the topology and returns a new stream or table.

    `name` is that of the node, in descriptions and in the names of internal topics and stores; by
    default Kafka's numbered one. Functions take key and value; a column is given by `expr`, or as
    Spark's own. TopologyException for a name that is taken, and for a column without a type.

    >>> from ottla.streams import StreamsBuilder
    >>> from ottla.testing import PipelineDriver
    >>> builder = StreamsBuilder()
    >>> orders = builder.stream("orders").map_values(lambda order: order["price"] * order["count"])
    >>> orders.filter(lambda customer, total: total > 100).to("large")
    >>> with PipelineDriver(builder.build()) as driver:
    ...     driver.input_topic("orders").pipe("ann", {"price": 70, "count": 2}, timestamp=0)
    ...     driver.output_topic("large").read_pairs()
    [('ann', 140)]
    """

    def __init__(
        self,
        graph: Graph,
        output: Typed,
        *,
        has_new_key: bool = False,
        operator: ColumnOperator | None = None,
    ) -> None:
        """Take the node; `operator` has made its keys and values, if columns have."""
        super().__init__(graph, output)
        self.has_new_key = has_new_key
        self.operator = operator
        self._source_of_joins: str | None = None
        """Reads the topic that joins of the stream without a name share."""

    def filter(
        self, predicate: Callable[[Any, Any], Any] | Columns, *, name: str | None = None
    ) -> KStream:
        """Keep the records that a function of key and value accepts, or a column."""
        return self._filter(predicate, name, negated=False)

    def filter_not(
        self, predicate: Callable[[Any, Any], Any] | Columns, *, name: str | None = None
    ) -> KStream:
        """Drop the records that a function of key and value accepts, or a column."""
        return self._filter(predicate, name, negated=True)

    def _filter(self, predicate: Any, name: str | None, *, negated: bool) -> KStream:
        prefix = "KSTREAM-FILTER-"
        if is_column(predicate):
            return self._then(prefix, self._columns(Step(((predicate, negated),))), name)
        return self._then(prefix, Filter(predicate, negated=negated), name)

    def map(
        self,
        mapper: Callable[[Any, Any], tuple[Any, Any]] | tuple[Columns, Columns],
        *,
        name: str | None = None,
    ) -> KStream:
        """Replace key and value by a function, or by two columns."""
        processor: Processor
        if isinstance(mapper, tuple):
            processor = self._columns(Step(key=mapper[0], value=mapper[1]))
        else:
            processor = Map(mapper)
        return self._then("KSTREAM-MAP-", processor, name, new_key=True, new_value=True)

    def map_values(
        self,
        mapper: Callable[..., Any] | Columns,
        *,
        with_key: bool = False,
        name: str | None = None,
    ) -> KStream:
        """Replace the value by a function of it, or of key and value, or by a column."""
        processor = self._operator(
            mapper, Step(value=mapper), lambda one: MapValues(_keyed(one, with_key))
        )
        return self._then("KSTREAM-MAPVALUES-", processor, name, new_value=True)

    def flat_map(
        self,
        mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]] | Columns,
        *,
        name: str | None = None,
    ) -> KStream:
        """Replace a record by any number of keys and values, or by a column's array of both."""
        processor = self._operator(mapper, Step(pairs=mapper), FlatMap)
        return self._then("KSTREAM-FLATMAP-", processor, name, new_key=True, new_value=True)

    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[Any]] | Columns,
        *,
        with_key: bool = False,
        name: str | None = None,
    ) -> KStream:
        """Replace a record by any number of records of its key, or by a column's array."""
        processor = self._operator(
            mapper, Step(values=mapper), lambda one: FlatMapValues(_keyed(one, with_key))
        )
        return self._then("KSTREAM-FLATMAPVALUES-", processor, name, new_value=True)

    def select_key(
        self, mapper: Callable[[Any, Any], Any] | Columns, *, name: str | None = None
    ) -> KStream:
        """Replace the key by a function of key and value, or by a column."""
        processor = self._operator(mapper, Step(key=mapper), _selecting)
        return self._then("KSTREAM-KEY-SELECT-", processor, name, new_key=True)

    def peek(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Call a function for each record."""
        return self._then("KSTREAM-PEEK-", Peek(action), name)

    def foreach(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> None:
        """Call a function for each record, and end the stream here."""
        self._then("KSTREAM-FOREACH-", Peek(action, forwards=False), name)

    def print(self, printed: Printed | str | None = None, *, name: str | None = None) -> None:
        """Print each record after a label, the node's name by default, and end the stream here.

        On Spark it is in the output of the workers, or in a file of the machine that they are on.
        """
        given = printed if isinstance(printed, Printed) else Printed(printed)
        made = Peek(printing(given, given.label or self.node), forwards=False)
        self._then("KSTREAM-PRINTER-", made, name or given.name)

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """Return the records of both streams."""
        made = self.graph.name("KSTREAM-MERGE-", name)
        self.graph.add(made, PassThrough(), self.node, other.node)
        has_new_key = self.has_new_key or other.has_new_key
        operator = None if other.operator is None else self.operator
        return self._at(
            made, self.key_serde, self.value_serde, has_new_key=has_new_key, operator=operator
        )

    def split(self, *, name: str | None = None) -> BranchedKStream:
        """Start to split the stream into branches."""
        return BranchedKStream(self, self._branch, self._at_branch, name)

    def repartition(self, repartitioned: Repartitioned | None = None) -> KStream:
        """Write the stream to an internal topic by its key, and read it again."""
        given = repartitioned or Repartitioned()
        name = given.name or self.graph.name("KSTREAM-REPARTITION-")  # Kafka counts no given one
        key, value = given.key or self.key_serde, given.value or self.value_serde
        output = Typed(self.node, key, value)
        source = self.graph.repartition(
            output, name, partitions=given.partitions, partitioner=given.partitioner
        )
        return self._at(source, key, value)

    def to(self, topic: str | Callable[..., str], produced: Produced | None = None) -> None:
        """Write the stream to a topic, or to those that a function returns.

        It takes key, value and RecordContext, and returns the topic's name.
        """
        given = produced or Produced()
        self.graph.topology.add_sink(
            self.graph.name("KSTREAM-SINK-", given.name),
            topic,
            self.node,
            key=given.key or self.key_serde,
            value=given.value or self.value_serde,
            partitioner=given.partitioner,
        )

    def to_table(
        self, materialized: Materialized | None = None, *, name: str | None = None
    ) -> KTable:
        """Return the latest value of each key."""
        given = materialized or Materialized()
        made = self.graph.name("KSTREAM-TOTABLE-", name)
        store = given.name or self.graph.store_name("KSTREAM-TOTABLE-")
        key, value = given.key or self.key_serde, given.value or self.value_serde
        parent = Typed(self.node, key, value)
        if self.has_new_key:
            parent = parent._replace(node=self.graph.repartition(parent, made))
        spec = table_store(self.graph, store, given, Typed(store, key, value))
        return source_table(self.graph, parent, made, spec, is_stored=given.name is not None)

    def group_by_key(self, grouped: Grouped | None = None) -> KGroupedStream:
        """Group the records by their key."""
        given = grouped or Grouped()
        output = Typed(self.node, given.key or self.key_serde, given.value or self.value_serde)
        return KGroupedStream(
            self.graph, output, given.name, has_new_key=self.has_new_key, stream=self
        )

    def group_by(
        self, selector: Callable[[Any, Any], Any] | Columns, grouped: Grouped | None = None
    ) -> KGroupedStream:
        """Group the records by a key that a function of key and value returns, or a column."""
        given = grouped or Grouped()
        keyed = self.select_key(selector, name=given.name)
        config = self.graph.config
        key = given.key or config.default_key_serde
        output = Typed(keyed.node, key, given.value or self.value_serde)
        return KGroupedStream(self.graph, output, given.name, has_new_key=True, stream=keyed)

    def process(
        self, supplier: Callable[[], Processor], *stores: str, name: str | None = None
    ) -> KStream:
        """Give the records to a processor of one's own; it may change keys.

        Stores are connected by name; those that `supplier.stores()` returns, if there is such a
        function, are added as well.
        """
        return self._process("KSTREAM-PROCESSOR-", supplier, stores, name, new_key=True)

    def process_values(
        self, supplier: Callable[[], Processor], *stores: str, name: str | None = None
    ) -> KStream:
        """Give the records to a processor of one's own that leaves keys as they are."""
        fixed: Any = supplier if isinstance(supplier, Processor) else FixedKeySupplier(supplier)
        return self._process("KSTREAM-PROCESSVALUES-", fixed, stores, name, new_key=False)

    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """Join with a stream (within windows) or a table.

        Parameters:
            other: a stream, which needs `windows`; a table, of the same number of partitions; or a
                global table, which needs `key_selector`.
            joiner: makes the new value of both; `joiner(key, value, other)` if `with_key=True`.
            windows: how far apart in time (ms) records may be, and the grace of late ones.
            options: `joined=` StreamJoined or Joined with serdes and name, `with_key=`, and for a
                global table `key_selector(key, value)` and `name=`.

        TypeError for an option that this kind of join needs, or does not have.

        >>> from ottla.streams import StreamsBuilder
        >>> from ottla.testing import PipelineDriver
        >>> builder = StreamsBuilder()
        >>> prices = builder.table("prices")
        >>> sales = builder.stream("sales")
        >>> sales.join(prices, lambda count, price: count * price).to("revenue")
        >>> with PipelineDriver(builder.build()) as driver:
        ...     driver.input_topic("prices").pipe("tea", 3, timestamp=0)
        ...     driver.input_topic("sales").pipe("tea", 5, timestamp=1)
        ...     driver.output_topic("revenue").read_pairs()
        [('tea', 15)]
        """
        return self._join(other, joiner, windows, is_left=False, is_outer=False, **options)

    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """Join, and keep records without a partner."""
        return self._join(other, joiner, windows, is_left=True, is_outer=False, **options)

    def outer_join(
        self, other: KStream, joiner: Callable[..., Any], windows: JoinWindows, **options: Any
    ) -> KStream:
        """Join with a stream, and keep the records of both without a partner."""
        return self._join(other, joiner, windows, is_left=True, is_outer=True, **options)

    def _join(  # noqa: PLR0913 - options with defaults
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        windows: JoinWindows | None,
        *,
        is_left: bool,
        is_outer: bool,
        joined: Any = None,
        with_key: bool = False,
        key_selector: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> KStream:
        keyed = _keyed(joiner, with_key)
        _check_options(other, windows, key_selector, name)
        if isinstance(other, KStream):
            assert windows is not None
            options = joined or StreamJoined()
            left, right = (
                self.for_join(options, "-left", keeps_null_keys=is_left),
                other.for_join(options, "-right", keeps_null_keys=is_left),
            )
            sides = (left.output, right.output)
            self.graph.topology.joined.append((left.node, right.node))
            made = join_streams(
                self.graph, sides, keyed, windows, options, is_left=is_left, is_outer=is_outer
            )
            return self._at(made, left.key_serde, self.graph.config.default_value_serde)
        if isinstance(other, KTable):
            return self._join_table(other, keyed, joined or Joined(), is_left=is_left)
        assert key_selector is not None
        processor = StreamTableJoin(StoreView(other.store), keyed, key_selector, is_left=is_left)
        made = self.graph.name("KSTREAM-LEFTJOIN-", name)  # Kafka's name for both
        self.graph.topology.add_processor(made, processor, self.node, stores=[other.store])
        return self._changed(made, new_key=False, new_value=True)

    def _join_table(
        self, other: KTable, joiner: Callable[..., Any], joined: Joined, *, is_left: bool
    ) -> KStream:
        stream = self
        if self.has_new_key:
            output = Typed(
                self.node, joined.key or self.key_serde, joined.value or self.value_serde
            )
            source = self._repartitioned(output, joined.name, keeps_null_keys=is_left)
            stream = self._at(source, output.key, output.value)
        prefix = "KSTREAM-LEFTJOIN-" if is_left else "KSTREAM-JOIN-"
        made = self.graph.name(prefix, joined.name)
        view: TableView = other.view()
        if joined.grace_ms is None:
            processor = StreamTableJoin(
                view, joiner, lambda key, _: key, is_left=is_left, is_versioned=other.is_versioned
            )
            stores = view.stores()
        else:
            if not other.is_versioned:
                text = "KTable must be versioned to use a grace period in a stream table join."
                raise ValueError(text)
            key, value = joined.key or stream.key_serde, joined.value or stream.value_serde
            store = self._add_buffer(f"{made}-Buffer", value)
            processor = WaitingStreamTableJoin(
                view, joiner, is_left=is_left, store=store, key=key, grace_ms=joined.grace_ms
            )
            stores = [*view.stores(), store]
        self.graph.add(made, processor, stream.node, stores=stores)
        self.graph.topology.joined.append((stream.node, other.node))
        return self._value_changed_from(stream, made)

    def _add_buffer(self, name: str, value: Serde) -> str:
        """Add a store of records that wait for a join; return its name."""
        kept = buffer_serde(value)
        self.graph.add_store(
            StoreSpec(name, "key-value", Serdes.bytes(), kept, has_timestamps=False)
        )
        return name

    def for_join(self, joined: StreamJoined, suffix: str, *, keeps_null_keys: bool) -> KStream:
        """Return the stream with its records where those of the same key of the other one are."""
        value = joined.value if suffix == "-left" else joined.other_value
        output = Typed(self.node, joined.key or self.key_serde, value or self.value_serde)
        if not self.has_new_key:
            return KStream(self.graph, output)
        name = None if joined.name is None else joined.name + suffix
        source = self._repartitioned(output, name, keeps_null_keys=keeps_null_keys)
        return KStream(self.graph, output._replace(node=source))

    def _repartitioned(self, output: Typed, name: str | None, *, keeps_null_keys: bool) -> str:
        """Write the stream to an internal topic for a join; return the source that reads it."""
        if name is not None:
            return self.graph.repartition(output, name, keeps_null_keys=keeps_null_keys)
        if self._source_of_joins is None:
            self._source_of_joins = self.graph.repartition(
                output, self.node, keeps_null_keys=keeps_null_keys
            )
        else:
            self.graph.skip_repartition_names()
        return self._source_of_joins

    def _process(
        self,
        prefix: str,
        supplier: Callable[[], Processor],
        stores: tuple[str, ...],
        name: str | None,
        *,
        new_key: bool,
    ) -> KStream:
        if isinstance(supplier, Processor):
            raise TypeError("give what makes a processor, its class for example: each task has one")
        made = name or self.graph.name(prefix)  # Kafka counts no given one
        self.graph.topology.add_processor(made, supplier, self.node)
        self.graph.topology.connect_processor_and_state_stores(made, *stores)
        return self._changed(made, new_key=new_key, new_value=True)

    def _then(
        self,
        prefix: str,
        processor: Processor,
        name: str | None,
        *,
        new_key: bool = False,
        new_value: bool = False,
    ) -> KStream:
        made = self.graph.name(prefix, name)
        self.graph.add(made, processor, self.node)
        changed = self._changed(made, new_key=new_key, new_value=new_value)
        if isinstance(processor, ColumnOperator):
            changed.operator = processor
        elif not (new_key or new_value):
            changed.operator = self.operator
        return changed

    def _operator(self, mapper: Any, step: Step, make: Callable[[Any], Processor]) -> Processor:
        """Return the processor of a step for a column, else that of a function."""
        return self._columns(step) if is_column(mapper) else make(mapper)

    def _columns(self, step: Step) -> ColumnOperator:
        """Return the processor of a step; TopologyException where no types are known."""
        if self.graph.config.processor_wrapper_class is not None:
            raise TopologyException("columns cannot be wrapped: give functions, or no wrapper")
        if self.operator is not None:
            return ColumnOperator(step, None, self.operator)
        found = [serde.for_columns or serde for serde in (self.key_serde, self.value_serde)]
        for serde in found:
            if not has_columns(serde):
                raise TopologyException(
                    f"a column needs a type, which the serde {serde.name} after {self.node} does "
                    "not have: give Consumed(value=Serdes.json(schema='name STRING, …'))"
                )
        return ColumnOperator(step, TypedInput(*found), None)

    def _value_changed_from(self, stream: KStream, node: str) -> KStream:
        value = self.graph.config.default_value_serde
        return self._at(node, stream.key_serde, value)

    def _changed(self, node: str, *, new_key: bool, new_value: bool) -> KStream:
        config = self.graph.config
        key = config.default_key_serde if new_key else self.key_serde
        value = config.default_value_serde if new_value else self.value_serde
        return self._at(node, key, value, has_new_key=self.has_new_key or new_key)

    def _branch(self, conditions: tuple[tuple[Any, bool], ...]) -> Processor:
        """Return the processor of a branch, with columns if it has conditions."""
        return self._columns(Step(conditions)) if conditions else PassThrough()

    def _at_branch(self, node: str, processor: Processor) -> KStream:
        """Return the same stream at another node."""
        operator = processor if isinstance(processor, ColumnOperator) else self.operator
        return self._at(
            node,
            self.key_serde,
            self.value_serde,
            has_new_key=self.has_new_key,
            operator=operator,
        )

    def _at(
        self,
        node: str,
        key: Serde,
        value: Serde,
        *,
        has_new_key: bool = False,
        operator: ColumnOperator | None = None,
    ) -> KStream:
        return KStream(
            self.graph, Typed(node, key, value), has_new_key=has_new_key, operator=operator
        )


def _keyed(function: Callable[..., Any], has_key: bool) -> Callable[..., Any]:  # noqa: FBT001 - passed on
    return with_key(function, has_key=has_key)


def _check_options(
    other: KStream | KTable | GlobalKTable, windows: Any, key_selector: Any, name: Any
) -> None:
    """Raise TypeError for options that a kind of join needs, or does not have."""
    is_global = isinstance(other, GlobalKTable)
    if isinstance(other, KStream) and windows is None:
        raise TypeError("a join of two streams needs JoinWindows")
    if is_global and key_selector is None:
        raise TypeError("a join with a global table needs key_selector(key, value)")
    if not isinstance(other, KStream) and windows is not None:
        raise TypeError("a join with a table has no windows")
    if not is_global and key_selector is not None:
        raise TypeError("key_selector is for joins with a global table; use select_key before")
    if not is_global and name is not None:
        kind = "StreamJoined" if isinstance(other, KStream) else "Joined"
        raise TypeError(f"the name of this join is given by joined={kind}(name={name!r})")


def _selecting(mapper: Callable[[Any, Any], Any]) -> Processor:
    return Map(lambda key, value: (mapper(key, value), value))
