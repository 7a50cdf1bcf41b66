"""Random stores and queries: the same answers as of Kafka Streams 4.3.0's own stores."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import Serdes, Stores, StreamsConfig, Window, Windowed
from ottla.streams.query.stores import ReadOnlyStore
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import open_store
from tests.streams.oracle import HERE, streams_jars

if TYPE_CHECKING:
    from ottla.streams.stores.specs import StoreSpec

TEXT = Serdes.string()
QUERIES: dict[str, dict[str, tuple[str, ...]]] = {
    "key-value": {
        "get": ("key",),
        "all": (),
        "reverse_all": (),
        "range": ("limit", "limit"),
        "reverse_range": ("limit", "limit"),
        "prefix_scan": ("key",),
        "approximate_num_entries": (),
    },
    "window": {
        "get": ("key", "time"),
        "all": (),
        "backward_all": (),
        "fetch": ("key", "time", "time"),
        "backward_fetch": ("key", "time", "time"),
        "fetch_keys": ("limit", "limit", "time", "time"),
        "backward_fetch_keys": ("limit", "limit", "time", "time"),
        "fetch_all": ("time", "time"),
        "backward_fetch_all": ("time", "time"),
    },
    "session": {
        "fetch": ("key",),
        "backward_fetch": ("key",),
        "fetch_keys": ("limit", "limit"),
        "backward_fetch_keys": ("limit", "limit"),
        "find_sessions": ("key", "time", "time"),
        "backward_find_sessions": ("key", "time", "time"),
        "find_sessions_of_keys": ("limit", "limit", "time", "time"),
        "backward_find_sessions_of_keys": ("limit", "limit", "time", "time"),
        "fetch_session": ("key", "time", "time"),
    },
    "lru": {
        "get": ("key",),
        "all": (),
        "reverse_all": (),
        "range": ("limit", "limit"),
        "reverse_range": ("limit", "limit"),
        "prefix_scan": ("key",),
        "approximate_num_entries": (),
    },
    "versioned": {"get": ("key", "limit_time"), "versions": ("key", "from_time", "to_time")},
}
SEEDS = 12


def case(kind: str, seed: int) -> dict[str, Any]:
    """Return entries and queries: keys that are prefixes of others, times beyond the retention."""
    rng = Random(f"{kind} {seed}")
    keys = ("a", "aa", "ab", "b", "c")
    makers: dict[str, Any] = {
        "key": lambda: rng.choice(keys),
        "limit": lambda: rng.choice((None, *keys)),
        "time": lambda: rng.randrange(130),
        "from_time": lambda: rng.choice((None, rng.randrange(60))),
        "to_time": lambda: rng.choice((None, rng.randrange(60, 130))),
        "limit_time": lambda: rng.choice((None, rng.randrange(130))),
    }
    puts = []
    for number in range(30):
        start = max(0, number * 4 - rng.choice((0, 0, 3, 20)))
        value = None if rng.random() < 0.15 else f"v{number}"
        puts.append([rng.choice(keys), value, start, start + rng.randrange(8)])
    queries = [
        [name, *(makers[one]() for one in arguments)]
        for name, arguments in QUERIES[kind].items()
        for _ in range(8 if arguments else 1)
    ]
    retention = rng.choice((1_000, 40))
    if kind == "lru":  # some are gets, which count as uses
        retention = rng.choice((0, 1, 2, 4))
        puts = [[key, rng.choice((value, "get")), *times] for key, value, *times in puts]
    elif retention < len(puts) * 4:  # how long Kafka has versions beyond the history is not defined
        queries = [one for one in queries if one[0] != "versions"]
    return {"kind": kind, "retention": retention, "puts": puts, "queries": queries}


def spec(kind: str, retention: int) -> StoreSpec:
    """Return the definition of a store."""
    if kind == "key-value":
        return Stores.key_value("store", TEXT, TEXT)
    if kind == "lru":
        return Stores.lru_map("store", TEXT, TEXT, max_entries=retention)
    if kind == "window":
        return Stores.window("store", TEXT, TEXT, retention=retention, size=10)
    if kind == "session":
        return Stores.session("store", TEXT, TEXT, retention=retention)
    return Stores.versioned_key_value("store", TEXT, TEXT, history=retention)


def put(store: Any, kind: str, entry: list[Any]) -> None:
    """Put an entry into a store."""
    key, value, start, end = entry
    if kind == "lru" and value == "get":
        store.get(key)
    elif kind in {"key-value", "lru"}:
        store.put(key, value)
    elif kind == "session":
        store.put(Windowed(key, Window(start, end)), value)
    else:
        store.put(key, value, start)


def answer(store: ReadOnlyStore, query: list[Any]) -> list[Any]:
    """Return what a query finds, in the form of the Java side."""
    name, *arguments = query
    if name == "prefix_scan":
        arguments.append(TEXT)
    found = getattr(store, name)(*arguments)
    if name == "get" and store.kind == "versioned":
        return [None if found is None else f"{found.value}@{found.timestamp}"]
    if name in {"get", "fetch_session", "approximate_num_entries"}:
        return [found]
    if name == "versions":
        return [f"{one.value}@{one.timestamp}/{one.valid_to}" for one in found]
    return [f"{key_text(key)}={value}" for key, value in found]


def key_text(key: Any) -> str:
    """Return a key, and its window, as text."""
    if isinstance(key, Windowed):
        return f"{key.key}@{key.window.start}/{key.window.end}"
    return str(key)


@pytest.mark.conformance
@pytest.mark.timeout(900)
def test_queries_of_stores_have_the_answers_of_kafka_streams() -> None:
    """Entries, their order, what has expired."""
    cases = [case(kind, seed) for kind in QUERIES for seed in range(SEEDS)]
    kafka = streams_jars()
    classes = kafka.compile(HERE / "StoresOracle.java")
    done = kafka.run("StoresOracle", classes=classes, stdin=json.dumps(cases), timeout_s=800)
    expected = json.loads(done.stdout.partition("ANSWERS")[2])
    for one, answers in zip(cases, expected, strict=True):
        kind = one["kind"]
        defined, backend = spec(kind, one["retention"]), MemoryBackend()
        for entry in one["puts"]:  # opened each time, as by each micro-batch
            store = open_store(defined, backend, StreamsConfig())
            put(store, kind, entry)
            store.flush()
        for query, found in zip(one["queries"], answers, strict=True):
            assert answer(ReadOnlyStore([store], defined.kind), query) == found, (one, query)
