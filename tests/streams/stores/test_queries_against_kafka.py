"""Queries by partition: each store answers those, and so, as Kafka Streams 4.3.0's stores do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import (
    AggregationWithHeaders,
    KeyQuery,
    MultiVersionedKeyQuery,
    RangeQuery,
    Serdes,
    StateQueryRequest,
    Stores,
    StreamsConfig,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedKeyQuery,
    VersionedRecord,
    Window,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
)
from ottla.streams.query.state_queries import answer_all
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import open_store
from tests.streams.oracle import HERE, streams_jars

if TYPE_CHECKING:
    from ottla.streams.query.state_queries import StoreQuery
    from ottla.streams.stores.specs import StoreSpec

TEXT = Serdes.string()
WINDOW = Stores.window("store", TEXT, TEXT, retention=1000, size=10)
SPECS = {
    "plain": Stores.key_value("store", TEXT, TEXT),
    "timestamped": Stores.timestamped_key_value("store", TEXT, TEXT),
    "window": WINDOW,
    "timestamped-window": replace(WINDOW, has_timestamps=True),
    "session": Stores.session("store", TEXT, TEXT, retention=1000),
    "headers": Stores.timestamped_key_value("store", TEXT, TEXT, has_headers=True),
    "headers-window": replace(WINDOW, has_timestamps=True, has_headers=True),
    "headers-session": Stores.session("store", TEXT, TEXT, retention=1000, has_headers=True),
    "versioned": Stores.versioned_key_value("store", TEXT, TEXT, history=1000),
}
QUERIES: dict[str, StoreQuery] = {
    "key": KeyQuery("a"),
    "no-key": KeyQuery("x"),
    "timestamped-key": TimestampedKeyQuery("a"),
    "range": RangeQuery("b"),
    "descending-range": RangeQuery("a", "b", is_descending=True),
    "timestamped-range": TimestampedRangeQuery(),
    "window-key": WindowKeyQuery("a", 5, 25),
    "window-range": WindowRangeQuery.with_window_start_range(15, 30),
    "window-range-of-key": WindowRangeQuery.with_key("a"),
    "versioned-key": VersionedKeyQuery("a"),
    "versioned-key-as-of": VersionedKeyQuery("a", 15),
    "versions": MultiVersionedKeyQuery("a"),
    "descending-versions": MultiVersionedKeyQuery("a", 5, is_descending=True),
}


def filled(spec: StoreSpec) -> Any:
    """Return a store with the entries of the Java side."""
    store = open_store(spec, MemoryBackend(), StreamsConfig())
    for key, value, time in (("a", "1", 10), ("b", "2", 20), ("a", "3", 30), ("c", "4", 40)):
        made: Any = ValueAndTimestamp(value, time) if spec.has_timestamps else value
        headers = (("of", key.encode()), ("none", None))
        if spec.has_headers:
            made = ValueTimestampHeaders(value, time, headers)
        if spec.kind == "key-value":
            store.put(key, made)
        elif spec.kind == "session":
            aggregation = AggregationWithHeaders(value, headers) if spec.has_headers else value
            store.put(Windowed(key, Window(time, time + 5)), aggregation)
        else:
            store.put(key, made if spec.kind == "window" else value, time)
    return store


def text(value: Any) -> str:
    """Return an answer in the form of the Java side."""
    if isinstance(value, (ValueTimestampHeaders, AggregationWithHeaders)):
        found = " ".join(f"{name}:{data and data.decode()}" for name, data in value.headers)
        time = f"@{value.timestamp}" if isinstance(value, ValueTimestampHeaders) else ""
        return f"{value[0]}{time} {found}"
    if isinstance(value, VersionedRecord):
        return f"{value.value}@{value.timestamp}/{value.valid_to}"
    if isinstance(value, ValueAndTimestamp):
        return f"{value.value}@{value.timestamp}"
    if isinstance(value, Windowed):
        return f"{value.key}@{value.window.start}/{value.window.end}"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    return "=".join(map(text, value)) if isinstance(value, tuple) else str(value)


def content(spec: StoreSpec) -> str:
    """Return what a store's own methods read."""
    store = filled(spec)
    if spec.kind == "versioned":
        return text(store.get("a"))
    if spec.kind == "key-value":
        return text(list(store.all()))
    return text(list(store.fetch("a", 0, 50) if spec.kind == "window" else store.fetch("a")))


def answered(spec: StoreSpec, query: StoreQuery) -> str:
    """Return the answer of a store, or why there is none."""
    found = answer_all(StateQueryRequest("store", query), spec, {0: filled(spec)}, {})
    result = found.partition_results[0]
    return text(result.result) if result.failure_reason is None else result.failure_reason.name


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_stores_answer_the_queries_that_kafkas_answer() -> None:
    """With the same values, in the same order."""
    kafka = streams_jars()
    classes = kafka.compile(HERE / "QueriesOracle.java")
    done = kafka.run("QueriesOracle", classes=classes, stdin="", timeout_s=800)
    expected = dict(
        line.removeprefix("== ").split(": ", 1)
        for line in done.stdout.splitlines()
        if line.startswith("== ")
    )
    found = {
        f"{kind} {name}": answered(spec, query)
        for kind, spec in SPECS.items()
        for name, query in QUERIES.items()
    }
    found.update({f"{kind} content": content(spec) for kind, spec in SPECS.items()})
    assert found == expected
