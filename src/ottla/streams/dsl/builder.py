"""StreamsBuilder: where a topology starts.

Kafka: org.apache.kafka.streams.StreamsBuilder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.streams.config import StreamsConfig
from ottla.streams.dsl.graph import Graph, Typed
from ottla.streams.dsl.settings import Consumed, Materialized
from ottla.streams.dsl.stream import KStream
from ottla.streams.dsl.table import GlobalKTable, KTable, source_table, table_store
from ottla.streams.errors import TopologyException
from ottla.streams.processors.tables import TableSource
from ottla.streams.topology.topology import same_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.processors.processor import Processor
    from ottla.streams.stores.specs import StoreSpec
    from ottla.streams.topology.topology import Topology


class StreamsBuilder:
    """Makes streams and tables of topics, and the topology of what is done with them.

    `config` has the application's id, its default serdes (strings for keys, JSON for values) and
    its handlers of errors.

    >>> from ottla.streams import Serdes
    >>> from ottla.testing import PipelineDriver
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks").filter(lambda user, click: click["page"] != "/health")
    >>> clicks.group_by_key().count().to_stream().to("counts")
    >>> with PipelineDriver(builder.build()) as driver:
    ...     driver.input_topic("clicks").pipe("ann", {"page": "/"}, timestamp=0)
    ...     driver.output_topic("counts", value=Serdes.long()).read().value
    1
    """

    def __init__(self, config: StreamsConfig | None = None) -> None:
        self._graph = Graph(config or StreamsConfig())
        self._streams: dict[object, tuple[str, Consumed]] = {}
        """The sources of streams by their topics, or by the text and the flags of a pattern."""

    def stream(self, *topics: str | re.Pattern[str], consumed: Consumed | None = None) -> KStream:
        """Return the records of topics, by their names, or of all that one pattern matches."""
        is_pattern = len(topics) == 1 and isinstance(topics[0], re.Pattern)
        if not topics or not (is_pattern or all(isinstance(topic, str) for topic in topics)):
            raise TypeError(
                "stream takes names of topics, or one pattern: stream(re.compile('a-.*')), "
                f"stream('a', 'b'), not {topics!r}"
            )
        consumed = consumed or Consumed()
        name = self._stream_source(topics, consumed)
        return KStream(self._graph, self._typed(name, consumed))

    def table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """Return the latest value of each key of a topic."""
        consumed, given = consumed or Consumed(), materialized or Materialized()
        graph = self._graph
        store = given.name or graph.store_name(f"{topic}-")
        source = self._table_source(topic, consumed)
        name = graph.name("KTABLE-SOURCE-", consumed.name)
        typed = self._typed(source, consumed)
        spec = table_store(graph, store, given, typed)
        return source_table(graph, typed, name, spec, is_stored=given.name is not None)

    def global_table(
        self,
        topic: str,
        consumed: Consumed | None = None,
        materialized: Materialized | None = None,
    ) -> GlobalKTable:
        """Return the latest value of each key of a topic, all of them in every task."""
        consumed, given = consumed or Consumed(), materialized or Materialized()
        if given.history_ms is not None:
            raise TopologyException("GlobalKTables cannot be versioned.")
        graph = self._graph
        store = given.name or graph.store_name(f"{topic}-")
        source = self._table_source(topic, consumed, is_global=True)
        name = graph.name("KTABLE-SOURCE-", consumed.name)
        typed = self._typed(source, consumed)
        graph.add(name, TableSource(store), source)
        graph.add_store(table_store(graph, store, given, typed), name)
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
        source = self._table_source(topic, consumed, is_global=True)
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

    def _stream_source(self, topics: tuple[str | re.Pattern[str], ...], consumed: Consumed) -> str:
        """Return the source of a stream: that of a former one of the same topics, as in Kafka."""
        graph, first = self._graph, topics[0]
        read = same_pattern(first) if isinstance(first, re.Pattern) else frozenset(topics)
        former = self._streams.get(read)
        if former is None:
            name = self._source(topics, consumed)
            self._streams[read] = (name, consumed)
            return name
        graph.suffixed(consumed.name, "", "KSTREAM-SOURCE-")  # its number is counted
        self._check_same(former[1], consumed)
        return former[0]

    def _check_same(self, former: Consumed, consumed: Consumed) -> None:
        """Raise TopologyException where two streams of the same topics read them differently."""
        if former.offset_reset_policy != consumed.offset_reset_policy:
            text = "Can't configure different offset reset policies on the same input topic(s)"
            raise TopologyException(text)
        old, new = self._typed("", former), self._typed("", consumed)
        for one, other in ((old.key, new.key), (old.value, new.value)):
            if (one.name, one.schema) != (other.name, other.schema):
                text = f"Two streams of the same topics have serdes {one.name} and {other.name}"
                raise TopologyException(text)
        if former.timestamp_extractor != consumed.timestamp_extractor:
            raise TopologyException(
                "Two streams of the same topics have other timestamp extractors"
            )

    def _table_source(self, topic: Any, consumed: Consumed, *, is_global: bool = False) -> str:
        if not isinstance(topic, str):
            raise TypeError(f"a table is that of one topic, by its name, not {topic!r}")
        return self._source((topic,), consumed, suffix="-source", is_global=is_global)

    def _source(
        self,
        topics: tuple[str | re.Pattern[str], ...],
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
            offset_reset_policy=consumed.offset_reset_policy,
        )
        return name
