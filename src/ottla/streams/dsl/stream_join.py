"""The nodes of a join of two streams.

Kafka: kstream.internals.KStreamImplJoin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.processors.stateless import PassThrough
from ottla.streams.processors.stream_joins import StoreForJoin, StreamJoin, waiting_serde
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.stores.specs import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.dsl.graph import Graph, Typed
    from ottla.streams.settings import StreamJoined
    from ottla.streams.windows import JoinWindows


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
