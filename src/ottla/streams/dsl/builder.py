"""StreamsBuilder: where a topology starts.

Kafka: org.apache.kafka.streams.StreamsBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.config import StreamsConfig
from ottla.streams.dsl.graph import Graph, Typed
from ottla.streams.dsl.stream import KStream
from ottla.streams.dsl.table import GlobalKTable, KTable, source_table, table_store
from ottla.streams.errors import TopologyException
from ottla.streams.processors.tables import TableSource
from ottla.streams.settings import Consumed, Materialized, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.processor import Processor
    from ottla.streams.topology import Topology


class StreamsBuilder:
    """Makes streams and tables of topics, and the topology of what is done with them."""

    def __init__(self, config: StreamsConfig | None = None) -> None:
        self._graph = Graph(config or StreamsConfig())

    def stream(self, *topics: str, consumed: Consumed | None = None) -> KStream:
        """Return the records of topics."""
        if not topics or not all(isinstance(one, str) for one in topics):
            raise TypeError(f"stream takes names of topics: stream('a', 'b'), not {topics!r}")
        consumed = consumed or Consumed()
        name = self._source(topics, consumed)
        return KStream(self._graph, self._typed(name, consumed))

    def table(
        self,
        topic: str,
        *,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Return the latest value of each key of a topic."""
        consumed, given = consumed or Consumed(), materialized or Materialized()
        graph = self._graph
        store = given.name or graph.store_name(f"{topic}-")
        source = self._source((topic,), consumed, suffix="-source")
        name = graph.name("KTABLE-SOURCE-", consumed.name)
        typed = self._typed(source, consumed)
        spec = table_store(store, given, typed.key, typed.value)
        return source_table(graph, typed, name, spec, is_stored=given.name is not None)

    def global_table(
        self,
        topic: str,
        *,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
    ) -> GlobalKTable:
        """Return the latest value of each key of a topic, all of them in every task."""
        consumed, given = consumed or Consumed(), materialized or Materialized()
        if given.history_ms is not None:
            raise TopologyException("GlobalKTables cannot be versioned.")
        graph = self._graph
        store = given.name or graph.store_name(f"{topic}-")
        source = self._source((topic,), consumed, suffix="-source", is_global=True)
        name = graph.name("KTABLE-SOURCE-", consumed.name)
        typed = self._typed(source, consumed)
        graph.add(name, TableSource(store), source)
        graph.add_store(table_store(store, given, typed.key, typed.value), name)
        return GlobalKTable(store, typed.key, typed.value)

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Processor],
        *,
        consumed: Consumed | None = None,
    ) -> StreamsBuilder:
        """Fill a store from a topic by a processor of one's own, in every task."""
        consumed, graph = consumed or Consumed(), self._graph
        source = self._source((topic,), consumed, suffix="-source", is_global=True)
        name = graph.name("KTABLE-SOURCE-", consumed.name)
        graph.topology.add_processor(name, supplier, source)
        graph.add_store(spec, name)
        return self

    def add_state_store(self, spec: StoreSpec) -> StreamsBuilder:
        """Add a store for `process`."""
        self._graph.add_store(spec)
        return self

    def build(self) -> Topology:
        """Return the topology."""
        return self._graph.topology

    def _typed(self, name: str, consumed: Consumed) -> Typed:
        config = self._graph.config
        key = consumed.key or config.default_key_serde
        return Typed(name, key, consumed.value or config.default_value_serde)

    def _source(
        self,
        topics: tuple[str, ...],
        consumed: Consumed,
        *,
        suffix: str = "",
        is_global: bool = False,
    ) -> str:
        name = self._graph.suffixed(consumed.name, suffix, "KSTREAM-SOURCE-")
        typed = self._typed(name, consumed)
        self._graph.topology.add_source(
            name,
            *topics,
            key=typed.key,
            value=typed.value,
            timestamp_extractor=consumed.timestamp_extractor
            or self._graph.config.default_timestamp_extractor,
            is_global=is_global,
        )
        return name
