"""What all objects of the DSL share: the topology, Kafka's numbering of names, repartitioning.

Kafka: kstream.internals.{InternalStreamsBuilder, AbstractStream}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.streams.processors.stateless import Filter, PassThrough
from ottla.streams.stores.specs import supplied
from ottla.streams.topology.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.streams.config import StreamsConfig
    from ottla.streams.data.serdes import Serde
    from ottla.streams.dsl.settings import Partitioner
    from ottla.streams.processors.processor import Processor
    from ottla.streams.stores.specs import DslStoreSuppliers, StoreSpec

_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


class Graph:
    """A topology that is being built."""

    def __init__(self, config: StreamsConfig) -> None:
        self.topology = Topology(config)
        self.config = config
        self._count = 0
        self._suppliers = config.dsl_store_suppliers_class()
        self._suppliers.configure(config.by_name())

    def name(self, prefix: str, given: str | None = None) -> str:
        """Return a name as given, or the next one of a prefix, which is counted in any case."""
        made = f"{prefix}{self._count:010d}"
        self._count += 1
        return made if given is None else given

    def suffixed(self, given: str | None, suffix: str, prefix: str) -> str:
        """Return a given name with a suffix, or the next one of a prefix."""
        made = self.name(prefix)
        return made if given is None else given + suffix

    def store_name(self, prefix: str) -> str:
        """Return the next name for a store."""
        return self.name(f"{prefix}STATE-STORE-")

    def add(
        self, name: str, processor: Processor, *parents: str, stores: Iterable[str] = ()
    ) -> None:
        """Add a processor."""
        self.topology.add_processor(name, processor, *parents)
        for store in stores:
            self.topology.connect_processor_and_state_stores(name, store)

    def add_store(self, spec: StoreSpec, *processors: str) -> None:
        """Add a store for some processors."""
        self.topology.add_state_store(spec, *processors)

    def supplied(self, spec: StoreSpec, suppliers: DslStoreSuppliers | None) -> StoreSpec:
        """Return a store in the form that an operator's suppliers choose, or the application's."""
        return supplied(suppliers or self._suppliers, spec)

    def skip_repartition_names(self) -> None:
        """Count the names of a repartitioning, as Kafka does where it uses a former one."""
        self._count += 3

    def repartition(
        self,
        parent: Typed,
        prefix: str,
        *,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        keeps_null_keys: bool = False,
    ) -> str:
        """Write a stream to an internal topic and read it again; return the new source's name.

        Records without a key are dropped, unless a left or outer join takes them.
        """
        topic = prefix if prefix.endswith("-repartition") else f"{prefix}-repartition"
        sink, keep, source = (
            self.name(kind) for kind in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-")
        )
        if not _GENERATED.fullmatch(prefix):
            sink, keep, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
        topology = self.topology
        if keep in topology.nodes and topology.nodes[keep].parents == [parent.node]:
            return source
        self.add(keep, PassThrough() if keeps_null_keys else Filter(has_key), parent.node)
        topology.internal_topics[topic] = partitions
        topology.add_sink(
            sink, topic, keep, key=parent.key, value=parent.value, partitioner=partitioner
        )
        topology.add_source(source, topic, key=parent.key, value=parent.value)
        return source


def has_key(key: Any, _value: Any) -> bool:
    """Whether a record has a key."""
    return key is not None


class Typed(NamedTuple):
    """A node's output and its serdes."""

    node: str
    key: Serde
    value: Serde


class Part:
    """Base of streams and tables: a node of a graph with the serdes of its output."""

    def __init__(self, graph: Graph, output: Typed) -> None:
        self.graph = graph
        self.output = output

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.output.node

    @property
    def key_serde(self) -> Serde:
        """The serde of the keys."""
        return self.output.key

    @property
    def value_serde(self) -> Serde:
        """The serde of the values."""
        return self.output.value


def with_key(function: Callable[..., Any], *, has_key: bool) -> Callable[..., Any]:
    """Return a function of key and values from one that may not take the key."""
    return function if has_key else lambda _, *values: function(*values)
