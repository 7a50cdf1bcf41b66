"""Interactive queries: the stores of an application, as of its last committed micro-batch.

Kafka: org.apache.kafka.streams.KafkaStreams.store, state.ReadOnlyKeyValueStore and its like.

A query reads Spark's state from the checkpoint, so the application may run or not. Numbers are as
of one micro-batch; to serve them at once, write the table to a topic.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from ottla.spark.checkpoint import Checkpoint
from ottla.spark.hadoop_settings import settings_of
from ottla.streams.checkpoints import check_topology
from ottla.streams.errors import StreamsException
from ottla.streams.stages import plan_stages
from ottla.streams.stores.backend import MemoryBackend
from ottla.streams.stores.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.streams.topology import Topology


class ReadOnlyStore:
    """A store of all tasks."""

    def __init__(self, tasks: list[Any]) -> None:
        self._tasks = tasks

    def get(self, key: Any, *place: Any) -> Any:
        """Return the value of a key (and the start of a window), None without one."""
        found = (task.get(key, *place) for task in self._tasks)
        return next((one for one in found if one is not None), None)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Yield all entries, task by task."""
        return chain.from_iterable(task.all() for task in self._tasks)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries between two keys, both included."""
        return chain.from_iterable(task.range(first, last) for task in self._tasks)

    def fetch(self, key: Any, *times: int) -> Iterator[tuple[Any, Any]]:
        """Yield the windows (that start between two times) or the sessions of a key."""
        return chain.from_iterable(task.fetch(key, *times) for task in self._tasks)


def query_store(
    topology: Topology, checkpoint: str | Path, name: str, spark: SparkSession
) -> ReadOnlyStore:
    """Return a store of an application; StreamsException where there is none."""
    location = str(checkpoint)
    spec = topology.stores.get(name)
    if spec is None or spec.kind == "buffer":
        known = ", ".join(sorted(topology.stores)) or "none"
        raise StreamsException(f"the topology has no store {name}; its stores: {known}")
    found = Checkpoint(location, settings_of(spark))
    if found.last_committed_batch() < 0:
        raise StreamsException(f"{location} has no committed micro-batch")
    check_topology(found, topology)
    backends: dict[int, MemoryBackend] = {}
    for task, key, value in _entries(topology, found.location, name, spark):
        backends.setdefault(task, MemoryBackend()).put(key, value)
    return ReadOnlyStore(
        [open_store(spec, one, topology.config) for _, one in sorted(backends.items())]
    )


def _entries(
    topology: Topology, location: str, name: str, spark: SparkSession
) -> Iterator[tuple[int, bytes, bytes]]:
    stateful = [stage for stage in plan_stages(topology).stages if stage.is_stateful]
    number, stage = next((number, one) for number, one in enumerate(stateful) if name in one.stores)
    rows = (
        spark.read.format("statestore")
        .option("operatorId", len(stateful) - 1 - number)  # Spark counts from the query's end
        .option("stateVarName", stage.state_name(name))
        .load(location)
        .select("key.run", "user_map_key.key", "user_map_value.value")
        .collect()
    )
    is_shared = name in topology.global_stores()
    for task, key, value in rows:
        if not is_shared or task == 0:  # a global store is the same in all tasks
            yield task, bytes(key), bytes(value)
