"""Backends of stores: scans of a part of the keys, while entries change."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import Serdes, Stores, ValueAndTimestamp, Window, Windowed
from ottla.streams.run.spark_tasks import StateBackend
from ottla.streams.stores.backend import Backend, MemoryBackend, end_of_prefix
from ottla.streams.stores.key_value import KeyValueStore
from ottla.streams.stores.windowed import SessionStore, WindowStore
from tests.streams.run.test_spark_tasks import MapState

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES = (0, 1, 97, 98, 254, 255)


def backends() -> list[Backend]:
    """Return a backend of each kind."""
    return [MemoryBackend(), StateBackend(MapState())]


@pytest.mark.parametrize("backend", backends(), ids=["memory", "Spark's state"])
def test_scans_have_what_is_there(backend: Backend) -> None:
    """After any puts and removals: ranges and prefixes as of a map that is sorted each time."""
    rng = Random(1)
    store = KeyValueStore(backend, Serdes.bytes(), Serdes.bytes())
    model: dict[bytes, bytes] = {}

    def key() -> bytes:
        return bytes(rng.choices(BYTES, k=rng.randrange(1, 4)))

    for number in range(2000):
        changed, value = key(), rng.choice([None, b"%d" % number])
        store.put(changed, value)
        if value is None:
            model.pop(changed, None)
        else:
            model[changed] = value
        if number % 7:
            continue
        first, last, prefix = key(), key(), key()[:2]
        entries = sorted(model.items())
        assert list(store.all()) == entries
        assert list(store.range(first, last)) == [one for one in entries if first <= one[0] <= last]
        assert list(store.range(None, last)) == [one for one in entries if one[0] <= last]
        found = list(store.prefix_scan(prefix))
        assert found == [one for one in entries if one[0].startswith(prefix)]


@pytest.mark.parametrize("backend", backends(), ids=["memory", "Spark's state"])
def test_entries_change_during_a_scan(backend: Backend) -> None:
    """A processor deletes what its scan finds, and what is ahead of it."""
    store = KeyValueStore(backend, Serdes.bytes(), Serdes.bytes())
    for key in (b"a", b"b", b"c", b"d"):
        store.put(key, b"1")
    found = []
    for key, _ in store.all():
        found.append(key)
        store.delete(key)
        store.delete(b"c")
        store.put(b"e", b"2")
    assert found == [b"a", b"b", b"d"]
    assert list(store.all()) == [(b"e", b"2")]


def test_entries_written_before_are_scanned() -> None:
    """What Spark's state had before the micro-batch, with what the batch has changed."""
    state = MapState()
    state.data = {(b"a",): (b"1",), (b"b",): (b"2",), (b"c",): (b"3",)}
    backend = StateBackend(state)
    backend.put(b"b", None)
    backend.put(b"aa", b"4")
    assert list(backend.items(b"a", b"c")) == [(b"a", b"1"), (b"aa", b"4")]
    backend.write("store")
    assert sorted(state.data) == [(b"a",), (b"aa",), (b"c",)]


def test_the_end_of_a_prefix() -> None:
    """The next key that does not start with it; after 0xff bytes there may be none."""
    assert end_of_prefix(b"a\xff\xff") == b"b"
    assert end_of_prefix(b"ab") == b"ac"
    assert end_of_prefix(b"\xff") is None
    assert end_of_prefix(b"") is None


def test_windows_are_fetched_by_keys_and_backwards() -> None:
    """As of a list that is sorted each time; of timestamped windows as well."""
    spec = Stores.window(
        "w", Serdes.string(), Serdes.long(), retention=1000, size=10, has_timestamps=True
    )
    store = WindowStore(MemoryBackend(), spec)
    rows = [(key, start) for start in (0, 10, 20) for key in ("a", "b", "c")]
    for number, (key, start) in enumerate(rows):
        store.put(key, ValueAndTimestamp(number, start), start)

    def named(found: Iterable[tuple[Windowed, Any]]) -> list[tuple[str, int]]:
        return [(one.key, one.window.start) for one, _ in found]

    assert named(store.backward_all()) == rows[::-1]
    assert named(store.backward_fetch_all(0, 10)) == rows[:6][::-1]
    assert [start for start, _ in store.backward_fetch("b", 5, 20)] == [20, 10]
    assert named(store.fetch_keys("b", None, 10, 20)) == [
        ("b", 10),
        ("c", 10),
        ("b", 20),
        ("c", 20),
    ]
    assert named(store.fetch_keys(None, "a", 0, 99)) == [("a", 0), ("a", 10), ("a", 20)]
    assert store.get("c", 20) == ValueAndTimestamp(8, 20)


def test_sessions_are_fetched_by_keys_and_backwards() -> None:
    """Keys by their bytes, sessions by their end."""
    spec = Stores.session("s", Serdes.string(), Serdes.long(), retention=1000)
    store = SessionStore(MemoryBackend(), spec)
    sessions = [
        Windowed(key, Window(time, time + 5)) for key in ("a", "b", "c") for time in (0, 20)
    ]
    for number, one in enumerate(sessions):
        store.put(one, number)
    assert [one for one, _ in store.backward_fetch("b")] == [sessions[3], sessions[2]]
    assert [one for one, _ in store.backward_find_sessions("b", 0, 10)] == [sessions[2]]
    assert [one for one, _ in store.fetch_keys("b", "c")] == sessions[2:]
    assert [one for one, _ in store.fetch_keys(None, "a")] == sessions[:2]
