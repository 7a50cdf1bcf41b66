"""Queries of stores of several tasks, and what `ottla streams query` selects of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import Serdes, Stores, StreamsConfig, StreamsException, Window, Windowed
from ottla.streams.query.stores import ReadOnlyStore, StoreSelection, select
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import open_store

if TYPE_CHECKING:
    from ottla.streams.stores.specs import StoreSpec

TEXT = Serdes.string()
VERSIONED = Stores.versioned_key_value("s", TEXT, TEXT, history=1000)
WINDOWS = Stores.window("s", TEXT, TEXT, retention=1000, size=10)
SESSIONS = Stores.session("s", TEXT, TEXT, retention=1000)


def store(spec: StoreSpec, *tasks: list[tuple[Any, ...]]) -> ReadOnlyStore:
    """Return a store of tasks with entries, as arguments of `put`."""
    opened = []
    for entries in tasks:
        one = open_store(spec, MemoryBackend(), StreamsConfig())
        for entry in entries:
            one.put(*entry)
        opened.append(one)
    return ReadOnlyStore(opened, spec.kind)


def table() -> ReadOnlyStore:
    """Return a table of two tasks."""
    spec = Stores.key_value("s", TEXT, TEXT)
    return store(spec, [("a", "1"), ("ca", "2")], [("b", "3"), ("cb", "4")])


def session(key: str, start: int, end: int) -> Windowed:
    """Return a session's key."""
    return Windowed(key, Window(start, end))


def test_entries_come_task_by_task() -> None:
    """As in Kafka Streams; a key is looked up in all."""
    found = table()
    assert found.get("b") == "3"
    assert found.get("x") is None
    assert list(found.range("b", None)) == [("ca", "2"), ("b", "3"), ("cb", "4")]
    assert list(found.reverse_range(None, "b")) == [("a", "1"), ("b", "3")]
    assert [key for key, _ in found.reverse_all()] == ["ca", "a", "cb", "b"]
    assert list(found.prefix_scan("c", TEXT)) == [("ca", "2"), ("cb", "4")]
    assert found.approximate_num_entries() == 4
    with pytest.raises(StreamsException, match="a key-value store has no fetch_all"):
        found.fetch_all(0, 1)


def test_windows_and_sessions_are_fetched_by_time() -> None:
    """Of a key, of a range of keys, of all; and backwards."""
    windows = store(WINDOWS, [("a", "1", 0), ("a", "2", 10)], [("b", "3", 20)])
    assert list(windows.fetch("a", 5, 30)) == [(10, "2")]
    assert [start for start, _ in windows.backward_fetch("a", 0, 30)] == [10, 0]
    assert windows.get("b", 20) == "3"
    assert [value for _, value in windows.fetch_all(5, 30)] == ["2", "3"]
    assert [value for _, value in windows.backward_fetch_all(0, 10)] == ["2", "1"]
    assert [value for _, value in windows.backward_all()] == ["2", "1", "3"]
    assert [value for _, value in windows.fetch_keys("b", None, 0, 30)] == ["3"]
    assert [value for _, value in windows.backward_fetch_keys("a", "a", 0, 30)] == ["2", "1"]
    first, second, other = session("a", 0, 5), session("a", 20, 25), session("b", 3, 9)
    sessions = store(SESSIONS, [(first, "1"), (second, "2")], [(other, "3")])
    assert sessions.fetch_session("b", 3, 9) == "3"
    assert sessions.fetch_session("b", 3, 10) is None
    assert list(sessions.fetch("a")) == [(first, "1"), (second, "2")]
    assert list(sessions.backward_fetch("a")) == [(second, "2"), (first, "1")]
    assert list(sessions.find_sessions("a", 6, 30)) == [(second, "2")]
    assert list(sessions.backward_find_sessions("a", 5, 30)) == [(second, "2"), (first, "1")]
    assert list(sessions.find_sessions_of_keys("a", None, 0, 3)) == [(first, "1"), (other, "3")]
    found = sessions.backward_find_sessions_of_keys("a", "a", 0, 30)
    assert list(found) == [(second, "2"), (first, "1")]
    assert [value for _, value in sessions.fetch_keys("a", "b")] == ["1", "2", "3"]
    assert [value for _, value in sessions.backward_fetch_keys("a", "b")] == ["2", "1", "3"]


def test_versions_of_a_key_are_listed() -> None:
    """Those valid within a span; a deletion ends one and is none."""
    found = store(VERSIONED, [("a", "1", 10), ("a", "2", 20), ("a", None, 30), ("a", "3", 40)])
    assert [tuple(one) for one in found.versions("a")] == [
        ("1", 10, 20),
        ("2", 20, 30),
        ("3", 40, None),
    ]
    assert [one.value for one in found.versions("a", 20, 39)] == ["2"]
    assert list(found.versions("b")) == []
    with pytest.raises(ValueError, match="ends before it begins"):
        list(found.versions("a", 2, 1))
    assert [value.value for _, value in found.all(15)] == ["1"]
    assert found.get("a", 35) is None


def selected(found: ReadOnlyStore, **given: Any) -> list[Any]:
    """Return the values of what is selected."""
    chosen = select(found, TEXT, StoreSelection(**given))
    return [getattr(value, "value", value) for _, value in chosen]


def test_the_tool_selects_by_keys_over_all_tasks() -> None:
    """In one order; reversed; the first ones."""
    assert selected(table()) == ["1", "3", "2", "4"]
    assert selected(table(), key="b") == ["3"]
    assert selected(table(), first="b", last="ca") == ["3", "2"]
    assert selected(table(), prefix="c", reverse=True) == ["4", "2"]
    assert selected(table(), reverse=True, limit=1) == ["4"]
    numbers = store(Stores.key_value("s", Serdes.long(), TEXT), [(9, "9"), (10, "10")])
    chosen = select(numbers, Serdes.long(), StoreSelection(first="10"))
    assert list(chosen) == [(10, "10")]
    with pytest.raises(StreamsException, match="'x' is no JSON of a key of serde long"):
        list(select(numbers, Serdes.long(), StoreSelection(last="x")))
    with pytest.raises(StreamsException, match="has no windows"):
        selected(table(), first_ms=1)
    with pytest.raises(StreamsException, match="has no versions"):
        selected(table(), as_of_ms=1)


def test_the_tool_selects_by_time() -> None:
    """Windows by their start, sessions that overlap, versions as of a time."""
    windows = store(WINDOWS, [("a", "1", 0), ("a", "2", 20)], [("b", "3", 10)])
    assert selected(windows) == ["1", "3", "2"]
    assert selected(windows, first_ms=1, last_ms=10) == ["3"]
    assert selected(windows, key="a", reverse=True) == ["2", "1"]
    sessions = store(SESSIONS, [(session("a", 0, 5), "1"), (session("a", 20, 25), "2")])
    assert selected(sessions, first_ms=4) == ["1", "2"]
    assert selected(sessions, first_ms=6) == ["2"]
    assert selected(sessions, last_ms=19) == ["1"]
    versions = store(VERSIONED, [("a", "1", 10), ("a", None, 20), ("b", "2", 30)])
    assert selected(versions) == ["2"]
    assert selected(versions, as_of_ms=15) == ["1"]
