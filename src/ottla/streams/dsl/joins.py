"""The nodes of a join of two streams, and of a foreign-key join of two tables.

Kafka: kstream.internals.{KStreamImplJoin, KTableImpl.doJoinOnForeignKey}.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ottla.streams.data.serdes import Serde, Serdes
from ottla.streams.processors.foreign_key import (
    AnswerAll,
    AnswerSubscription,
    JoinAnswer,
    ReceiveSubscription,
    Subscribe,
    answer_serde,
    subscription_serde,
)
from ottla.streams.processors.joins import StoreForJoin, StreamJoin, waiting_serde
from ottla.streams.processors.stateless import PassThrough
from ottla.streams.stores.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.windows import JoinWindows
    from ottla.streams.dsl.graph import Graph, Typed
    from ottla.streams.dsl.settings import Partitioner, StreamJoined, TableJoined
    from ottla.streams.dsl.table import KTable
    from ottla.streams.processors.processor import Processor


def join_streams(
    graph: Graph,
    sides: tuple[Typed, Typed],
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    joined: StreamJoined,
    *,
    is_left: bool,
    is_outer: bool,
) -> str:
    """Add the nodes of a join; return the name of the one that has the results."""
    left, right = sides
    name = joined.name
    stored = [
        graph.suffixed(name, suffix, "KSTREAM-WINDOWED-")
        for suffix in ("-this-windowed", "-other-windowed")
    ]
    made = [
        graph.name("KSTREAM-OUTERTHIS-" if is_outer else "KSTREAM-JOINTHIS-"),
        graph.name("KSTREAM-OUTEROTHER-" if is_left else "KSTREAM-JOINOTHER-"),
    ]
    suffixes = [
        "-outer-this-join" if is_outer else "-this-join",
        "-outer-other-join" if is_left else "-other-join",
    ]
    joins = [
        one if name is None else name + suffix for one, suffix in zip(made, suffixes, strict=True)
    ]
    merge = graph.suffixed(name, "-merge", "KSTREAM-MERGE-")
    base = joined.store_name
    stores = [
        (one if base is None else base + suffix) + "-store"
        for one, suffix in zip(made, suffixes, strict=True)
    ]
    for side, node, store in zip(sides, stored, stores, strict=True):
        graph.add(node, StoreForJoin(store), side.node)
        spec = _side_store(store, left.key, side.value, windows)
        graph.add_store(graph.supplied(spec, joined.dsl_store_suppliers), node)
    waiting = _waiting_store(graph, made[0], base, is_left=is_left, is_outer=is_outer)
    for number, node in enumerate(joins):
        processor = StreamJoin(
            windows,
            joiner,
            other_store=stores[1 - number],
            waiting_store=waiting,
            is_left=number == 0,
            is_outer=(is_left, is_outer)[number],
            serdes=(left.key, left.value, right.value),
            shared=merge,
        )
        names = [stores[1 - number], *([] if waiting is None else [waiting])]
        graph.add(node, processor, stored[number], stores=names)
    graph.add(merge, PassThrough(), *joins)
    return merge


def _side_store(name: str, key: Serde, value: Serde, windows: JoinWindows) -> StoreSpec:
    return StoreSpec(
        name,
        "window",
        key,
        value,
        retention_ms=windows.size_ms + windows.grace_ms,
        window_size_ms=windows.size_ms,
        has_duplicates=True,
        has_timestamps=False,
    )


def _waiting_store(
    graph: Graph, first: str, base: str | None, *, is_left: bool, is_outer: bool
) -> str | None:
    """Add the store of records without a match, if any are kept."""
    if not is_left:
        return None
    number = first.rpartition("-")[2]
    kind = "outer" if is_outer else "left"
    name = f"KSTREAM-OUTERSHARED-{number}-store"
    if base is not None:
        name = f"{base}-{kind}-shared-join-store"
    graph.add_store(
        StoreSpec(name, "key-value", Serdes.bytes(), waiting_serde(), has_timestamps=False)
    )
    return name


_REGISTRATION = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-"
_RESPONSE = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-"
_PROCESSOR = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-"
_STORE = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"
_RESOLVER = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"


def join_by_foreign_key(
    left: KTable,
    right: KTable,
    joiner: Callable[[Any, Any], Any],
    foreign_key: Callable[[Any, Any], Any],
    *,
    given: TableJoined,
    is_left: bool,
) -> str:
    """Add the nodes of a join; return the name of the one that has the results."""
    graph, topology, name = left.graph, left.graph.topology, given.name
    topic = graph.suffixed(name, "-subscription-registration", _REGISTRATION) + "-topic"
    topology.internal_topics[topic] = None
    subscribe = graph.suffixed(name, "-subscription-registration-processor", _REGISTRATION)
    serdes = (left.key_serde, left.value_serde, right.key_serde)
    processor: Processor = Subscribe(
        foreign_key, serdes, is_left=is_left, is_versioned=left.is_versioned
    )
    graph.add(subscribe, processor, left.node)
    sink = graph.suffixed(name, "-subscription-registration-sink", "KTABLE-SINK-")
    topology.add_sink(
        sink,
        topic,
        subscribe,
        key=right.key_serde,
        value=subscription_serde(),
        partitioner=_by_key(given.other_partitioner, lambda key: key),
    )
    source = graph.suffixed(name, "-subscription-registration-source", "KTABLE-SOURCE-")
    topology.add_source(source, topic, key=right.key_serde, value=subscription_serde())
    made = graph.suffixed(name, "-subscription-store", _STORE)
    spec = StoreSpec(made, "key-value", Serdes.bytes(), subscription_serde(), has_timestamps=False)
    graph.add_store(spec)
    at_right = (right.key_serde, right.value_serde)
    receive = graph.suffixed(name, "-subscription-receive", _PROCESSOR)
    graph.add(receive, ReceiveSubscription(made, at_right), source, stores=[made])
    view = right.view()
    answer = graph.suffixed(name, "-subscription-join-foreign", _PROCESSOR)
    graph.add(answer, AnswerSubscription(at_right, view), receive, stores=view.stores())
    answer_all = graph.suffixed(name, "-foreign-join-subscription", _PROCESSOR)
    processor = AnswerAll(made, at_right, is_versioned=right.is_versioned)
    graph.add(answer_all, processor, right.node, stores=[made])
    topic = graph.suffixed(name, "-subscription-response", _RESPONSE) + "-topic"
    topology.internal_topics[topic] = None
    sink = graph.suffixed(name, "-subscription-response-sink", "KTABLE-SINK-")
    key, value = Serdes.bytes(), answer_serde()
    chosen = _by_key(given.partitioner, left.key_serde.deserialize)
    topology.add_sink(
        sink,
        topic,
        answer,
        answer_all,
        key=key,
        value=value,
        partitioner=chosen or _partition_of_row,
    )
    source = graph.suffixed(name, "-subscription-response-source", "KTABLE-SOURCE-")
    topology.add_source(source, topic, key=key, value=value)
    resolver = graph.suffixed(name, "-subscription-response-resolver", _RESOLVER)
    view = left.view()
    types = (left.key_serde, left.value_serde, right.value_serde)
    processor = JoinAnswer(view, joiner, types, is_left=is_left)
    graph.add(resolver, processor, source, stores=view.stores())
    return resolver


def _by_key(partitioner: Partitioner | None, key_of: Callable[[Any], Any]) -> Partitioner | None:
    """Return a partitioner of internal records, whose values it does not get.

    It raises ValueError for several partitions or none: each row has one answer.
    """
    if partitioner is None:
        return None

    def chosen(topic: str, key: Any, _value: Any, count: int) -> int | Collection[int] | None:
        found = partitioner(topic, key_of(key), None, count)
        if isinstance(found, Collection) and len(found) != 1:
            raise ValueError("a partitioner of a foreign-key join must choose one partition")
        return found

    return chosen


def _partition_of_row(_topic: str, _key: Any, value: Any, _count: int) -> int:
    """Return the partition that the subscribing row is in."""
    partition: int = value.partition
    return partition
