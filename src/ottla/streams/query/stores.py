"""Interactive queries: the stores of an application, as of its last committed micro-batch.

Kafka: org.apache.kafka.streams.KafkaStreams.{store, query}, state.ReadOnlyKeyValueStore and its
like.

A query reads Spark's state from the checkpoint, so the application may run or not. Numbers are as
of one micro-batch; to serve them at once, write the table to a topic.
"""

from __future__ import annotations

import json
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.spark.checkpoint import Checkpoint
from ottla.spark.hadoop_settings import settings_of
from ottla.streams.data.windows import Windowed
from ottla.streams.errors import StreamsException
from ottla.streams.plan.plan import layout
from ottla.streams.query.state_queries import answer_all
from ottla.streams.run.checkpoints import check_topology, noted_tasks
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import STORE_KINDS, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.streams.data.records import VersionedRecord
    from ottla.streams.data.serdes import Serde
    from ottla.streams.plan.plan import Stage
    from ottla.streams.query.state_queries import StateQueryRequest, StateQueryResult
    from ottla.streams.stores.specs import StoreSpec
    from ottla.streams.topology.topology import Topology
    from ottla.types import TopicPartition


class ReadOnlyStore:
    """A store of all tasks. Entries come task by task, in the order of each task's store.

    StreamsException for a method that stores of its kind do not have.
    """

    def __init__(self, tasks: list[Any], kind: str = "key-value") -> None:
        self._tasks, self.kind = tasks, kind

    def get(self, key: Any, *place: Any) -> Any:
        """Return the value of a key; of a window by its start, of a version as of a time."""
        return self._first("get", key, *place)

    def all(self, as_of: int | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield all entries, by the bytes of their keys; windows and sessions by time.

        A versioned store has them as of a time, too.
        """
        return self._each("all", *(() if as_of is None else (as_of,)))

    def approximate_num_entries(self) -> int:
        """Return the number of entries."""
        return sum(1 for _ in self.all())

    def reverse_all(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries of a key-value store, from the last key of a task to its first."""
        return self._each("reverse_all")

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries between two keys by their bytes, both included; None is no limit."""
        return self._each("range", first, last)

    def reverse_range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yield what `range` does, from the last key of a task to its first."""
        return self._each("reverse_range", first, last)

    def prefix_scan(self, prefix: Any, serde: Serde | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield the entries whose key's bytes start with a prefix, or with what a serde writes."""
        return self._each("prefix_scan", prefix, serde)

    def versions(
        self, key: Any, first: int | None = None, last: int | None = None
    ) -> Iterator[VersionedRecord]:
        """Yield the versions of a key that are valid within a span, by time; None is no limit."""
        return self._each("versions", key, first, last)

    def fetch(self, key: Any, *times: int) -> Iterator[tuple[Any, Any]]:
        """Yield the windows (that start between two times) or the sessions of a key, by time."""
        return self._each("fetch", key, *times)

    def backward_fetch(self, key: Any, *times: int) -> Iterator[tuple[Any, Any]]:
        """Yield what `fetch` does, the latest first."""
        return self._each("backward_fetch", key, *times)

    def fetch_keys(self, first: Any, last: Any, *times: int) -> Iterator[tuple[Any, Any]]:
        """Yield the windows (that start between two times) or the sessions of a range of keys."""
        return self._each("fetch_keys", first, last, *times)

    def backward_fetch_keys(self, first: Any, last: Any, *times: int) -> Iterator[tuple[Any, Any]]:
        """Yield what `fetch_keys` does, the latest first."""
        return self._each("backward_fetch_keys", first, last, *times)

    def fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[Any, Any]]:
        """Yield the windows of all keys that start between two times."""
        return self._each("fetch_all", first_ms, last_ms)

    def backward_fetch_all(self, first_ms: int, last_ms: int) -> Iterator[tuple[Any, Any]]:
        """Yield what `fetch_all` does, the latest first."""
        return self._each("backward_fetch_all", first_ms, last_ms)

    def backward_all(self) -> Iterator[tuple[Any, Any]]:
        """Yield all windows, the latest of each task first."""
        return self._each("backward_all")

    def find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield a key's sessions that end, and start, not before and not after two times."""
        return self._each("find_sessions", key, earliest_end_ms, latest_start_ms)

    def backward_find_sessions(
        self, key: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield what `find_sessions` does, the latest first."""
        return self._each("backward_find_sessions", key, earliest_end_ms, latest_start_ms)

    def find_sessions_of_keys(
        self, first: Any, last: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield what `find_sessions` does of a range of keys; None is no limit."""
        times = (earliest_end_ms, latest_start_ms)
        return self._each("find_sessions_of_keys", first, last, *times)

    def backward_find_sessions_of_keys(
        self, first: Any, last: Any, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Any, Any]]:
        """Yield what `find_sessions_of_keys` does, the latest first."""
        times = (earliest_end_ms, latest_start_ms)
        return self._each("backward_find_sessions_of_keys", first, last, *times)

    def fetch_session(self, key: Any, start_ms: int, end_ms: int) -> Any:
        """Return the value of a session, None without one."""
        return self._first("fetch_session", key, start_ms, end_ms)

    def _first(self, method: str, *arguments: Any) -> Any:
        found = (one(*arguments) for one in self._methods(method))
        return next((one for one in found if one is not None), None)

    def _each(self, method: str, *arguments: Any) -> Iterator[Any]:
        return chain.from_iterable(one(*arguments) for one in self._methods(method))

    def _methods(self, name: str) -> list[Callable[..., Any]]:
        if not hasattr(STORE_KINDS[self.kind], name):
            raise StreamsException(f"a {self.kind} store has no {name}")
        return [getattr(task, name) for task in self._tasks]


class StoredTasks(NamedTuple):
    """The stores of all tasks as of a micro-batch, and the last offsets that they have."""

    spec: StoreSpec
    tasks: dict[int, Any]
    position: dict[TopicPartition, int]


def query_store(
    topology: Topology, checkpoint: str | Path, name: str, spark: SparkSession
) -> ReadOnlyStore:
    """Return a store of an application; StreamsException where there is none."""
    found = read_tasks(topology, checkpoint, name, spark)
    return ReadOnlyStore(list(found.tasks.values()), found.spec.kind)


def query_state(
    topology: Topology, checkpoint: str | Path, request: StateQueryRequest, spark: SparkSession
) -> StateQueryResult:
    """Return the answers to a query; StreamsException where there is no such store."""
    found = read_tasks(topology, checkpoint, request.store, spark)
    is_global = request.store in topology.global_stores()
    return answer_all(request, *found, is_global=is_global)


def read_tasks(
    topology: Topology, checkpoint: str | Path, name: str, spark: SparkSession
) -> StoredTasks:
    """Return the stores of a name; StreamsException where there is none."""
    location = str(checkpoint)
    spec = topology.stores.get(name)
    if spec is None or spec.kind == "buffer":
        known = ", ".join(sorted(topology.stores)) or "none"
        raise StreamsException(f"the topology has no store {name}; its stores: {known}")
    found = Checkpoint(location, settings_of(spark))
    batch = found.last_committed_batch()
    if batch < 0:
        raise StreamsException(f"{location} has no committed micro-batch")
    check_topology(found, topology)
    place = _place(topology, name)
    is_shared = name in topology.global_stores()
    count = 1 if is_shared else noted_tasks(found).get(place.stage.sub_topology.number, 0)
    backends = {task: MemoryBackend() for task in range(count)}
    for task, key, value in _entries(place, found.location, batch, spark):
        if not is_shared or task == 0:  # a global store is the same in all tasks
            backends.setdefault(task, MemoryBackend()).put(key, value)
    tasks = {task: open_store(spec, one, topology.config) for task, one in sorted(backends.items())}
    position = {
        partition: offset - 1
        for offsets in found.source_offsets(batch)
        for partition, offset in offsets.positions.items()
        if offset > 0
    }
    return StoredTasks(spec, tasks, position)


class _Place(NamedTuple):
    """Where Spark has the state of a store."""

    stage: Stage
    operator: int
    variable: str


def _place(topology: Topology, name: str) -> _Place:
    stateful = [stage for stage in layout(topology).stages if stage.is_stateful]
    number, stage = next((number, one) for number, one in enumerate(stateful) if name in one.stores)
    # Spark counts from the query's end
    return _Place(stage, len(stateful) - 1 - number, stage.state_name(name))


def _entries(
    place: _Place, location: str, batch: int, spark: SparkSession
) -> Iterator[tuple[int, bytes, bytes]]:
    rows = (
        spark.read.format("statestore")
        .option("operatorId", place.operator)
        .option("stateVarName", place.variable)
        .option("batchId", batch)
        .load(location)
        .select("key.run", "user_map_key.key", "user_map_value.value")
        .collect()
    )
    for task, key, value in rows:
        yield task, bytes(key), bytes(value)


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
    selected = []
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
            is_windowed = isinstance(key, Windowed)
            order = (key.window.start, data, key.window.end) if is_windowed else (data,)
            selected.append((order, key, value))
    selected.sort(key=itemgetter(0), reverse=given.reverse)
    for _, key, value in islice(selected, given.limit):
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
