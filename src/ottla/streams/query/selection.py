"""Entries of a store for `ottla streams query`: by keys, times, a version's time, in order.

Kafka: no tool; org.apache.kafka.streams.query.{RangeQuery, WindowRangeQuery, VersionedKeyQuery}.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.streams.errors import StreamsException
from ottla.streams.windows import Windowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.streams.query.stores import ReadOnlyStore
    from ottla.streams.serdes import Serde


class StoreSelection(NamedTuple):
    """Which entries: keys as text (JSON, if they are none), times in ms; None is no limit."""

    key: str | None = None
    first: str | None = None
    last: str | None = None
    prefix: str | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    as_of_ms: int | None = None
    reverse: bool = False
    limit: int | None = None


def select(store: ReadOnlyStore, serde: Serde, given: StoreSelection) -> Iterator[tuple[Any, Any]]:
    """Yield the entries by the bytes of their keys, windows and sessions by time first.

    StreamsException for times of a store that has none, and for keys of another type.
    """
    _check(store, given)
    low, high = _data(serde, given.first), _data(serde, given.last)
    prefix = (given.prefix or "").encode()
    found = []
    for key, value in store.all(given.as_of_ms):
        own = key.key if isinstance(key, Windowed) else key
        data = serde.serialize(own) or b""
        if (
            (given.key is None or str(own) == given.key)
            and (low is None or low <= data)
            and (high is None or data <= high)
            and data.startswith(prefix)
            and _is_within(store, key, given)
        ):
            found.append((_place(key, data), key, value))
    found.sort(key=lambda one: one[0], reverse=given.reverse)
    for _, key, value in islice(found, given.limit):
        yield key, value


def _check(store: ReadOnlyStore, given: StoreSelection) -> None:
    has_times = given.first_ms is not None or given.last_ms is not None
    if has_times and store.kind not in {"window", "session"}:
        raise StreamsException(f"a {store.kind} store has no windows: leave the times out")
    if given.as_of_ms is not None and store.kind != "versioned":
        raise StreamsException(f"a {store.kind} store has no versions: leave --as-of out")


def _data(serde: Serde, text: str | None) -> bytes | None:
    """Return a key's bytes; what is no text is given in JSON."""
    if text is None or serde.name == "string":
        return serde.serialize(text)
    try:
        return serde.serialize(json.loads(text))
    except (ValueError, TypeError, OverflowError) as error:
        raise StreamsException(f"{text!r} is no JSON of a key of serde {serde.name}") from error


def _is_within(store: ReadOnlyStore, key: Any, given: StoreSelection) -> bool:
    """Whether a window starts within the times; a session overlaps them."""
    if store.kind not in {"window", "session"}:
        return True
    start, end = key.window
    last_start = start if store.kind == "window" else end
    return (given.first_ms is None or given.first_ms <= last_start) and (
        given.last_ms is None or start <= given.last_ms
    )


def _place(key: Any, data: bytes) -> tuple[Any, ...]:
    return (key.window.start, data, key.window.end) if isinstance(key, Windowed) else (data,)
