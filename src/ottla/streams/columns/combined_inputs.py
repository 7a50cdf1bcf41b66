"""Finds the stages whose records are combined before they come in.

Kafka: none; where a caching store combines updates, the stores' cache does.

All that comes in at such a stage goes to counts, or to aggregates of columns. Then the order of its
records matters only by their timestamps, which `combining` takes into account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from ottla.streams.columns.combining import CombiningTarget, Input
from ottla.streams.columns.operators import TypedInput
from ottla.streams.plan.paths import PICKLED
from ottla.streams.processors.aggregates import StreamAggregate
from ottla.streams.processors.time_windows import TimeWindowAggregate
from ottla.streams.topology import ProcessorNode, SourceNode
from ottla.streams.windows import TimeWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.streams.plan.layout import Stage
    from ottla.streams.processors.folds import Fold
    from ottla.streams.topology import Node, Topology

_KINDS: Final[dict[type, Any]] = {
    t.ByteType: pa.int64(),
    t.ShortType: pa.int64(),
    t.IntegerType: pa.int64(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float64(),
    t.DoubleType: pa.float64(),
    t.StringType: pa.string(),
}


def combined_inputs(
    topology: Topology, stage: Stage, serdes_of: Mapping[int, TypedInput]
) -> tuple[Input, ...]:
    """Return a stage's inputs by source topic and port; none if one cannot be combined.

    `serdes_of` has the serdes of its entries by port.
    """
    config = topology.config
    if not config.statestore_cache_max_bytes or stage.global_topics or stage.has_users:
        return ()
    if stage.patterns:  # a queue is that of a topic's partition: topics must be known
        return ()
    found: list[Input | None] = []
    sources = [one for one in stage.nodes if isinstance(one, SourceNode)]
    for source in sources:
        children = [one for one in topology.children(source.name) if one in stage.nodes]
        serdes = TypedInput(
            source.key or config.default_key_serde, source.value or config.default_value_serde
        )
        for topic in source.topics:
            is_own = topic in topology.internal_topics
            place = (stage.number, topic, source.name)
            made = _input(topology, place, serdes, children, is_checked=not is_own)
            found.append(None if source.timestamp_extractor is not None else made)
    for port, entry in stage.entries.items():
        child = topology.nodes[entry.child]
        place = (port, "", entry.parent)
        found.append(_input(topology, place, serdes_of[port], [child], is_checked=False))
    complete = tuple(item for item in found if item is not None)
    return complete if len(complete) == len(found) else ()


def _input(
    topology: Topology,
    place: tuple[int, str, str],
    serdes: TypedInput,
    children: list[Node],
    *,
    is_checked: bool,
) -> Input | None:
    targets = [_target(topology, child, serdes) for child in children]
    complete = tuple(one for one in targets if one is not None)
    if not complete or len(complete) < len(targets):
        return None
    return Input(*place, serdes.key, serdes.value, is_checked, complete)


def _target(topology: Topology, node: Node, serdes: TypedInput) -> CombiningTarget | None:
    if not isinstance(node, ProcessorNode):
        return None
    processor = node.supplier
    if not isinstance(processor, (StreamAggregate, TimeWindowAggregate)) or processor.fold is None:
        return None
    stores = [topology.stores[name] for name in node.stores]
    if any(one.kind == "versioned" or one.max_entries is not None for one in stores):
        return None  # its history has each update, or its order each use
    windows = None
    if isinstance(processor, TimeWindowAggregate):
        if not isinstance(processor.windows, TimeWindows):
            return None
        windows = processor.windows
    kinds = _kinds(processor.fold)
    if kinds is None or (kinds and serdes.value is PICKLED):
        return None
    return CombiningTarget(node.name, processor.fold, windows, kinds)


def _kinds(fold: Fold) -> tuple[tuple[str, pa.DataType], ...] | None:
    """Return the types of the operands; None where there is one that is not combined."""
    if fold.operator is None:
        return ()
    schema = fold.operator.outputs.value.schema
    found = tuple((field.name, _KINDS.get(type(field.dataType))) for field in schema.fields)
    return None if any(kind is None for _, kind in found) else found
