"""The producer's partitioners.

Compiled by Cython with `partitioner.pxd`; runs uncompiled too.

Kafka: org.apache.kafka.clients.producer.internals.BuiltInPartitioner,
org.apache.kafka.common.utils.Utils.murmur2. KIP-480, KIP-794. Hot path: benchmarks/clients.py.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ottla.clients.arguments import named_object
from ottla.errors import ConfigError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clients.environment import RandomSource
    from ottla.clients.metadata import ClusterMetadata

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
CACHED_KEYS = 65_536


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash that Kafka's clients use for keys."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        part = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        part |= data[position + 3] << 24
        part = part * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ part
    if length > whole:
        part = 0
        for position in range(length - 1, whole - 1, -1):
            part = part << 8 | data[position]
        value = (value ^ part) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


@lru_cache(maxsize=CACHED_KEYS)
def key_hash(key: bytes) -> int:
    """Return the positive hash of a key; results are cached."""
    return murmur2(key) & 0x7FFFFFFF


class RoundRobinPartitioner:
    """All partitions with a leader in turn, regardless of keys."""

    def __init__(self) -> None:
        self.metadata: ClusterMetadata | None = None
        self._counts: dict[str, int] = {}
        self._available: dict[str, tuple[int, list[int]]] = {}  # with the metadata's version

    def __call__(self, topic: str, key: bytes | None, count: int) -> int:  # noqa: ARG002 - a plug-in's
        """Return the next partition with a leader; without leaders, the next of all."""
        turn = self._counts[topic] = self._counts.get(topic, -1) + 1
        if self.metadata is None:
            return turn % count
        known = self._available.get(topic)
        if known is None or known[0] != self.metadata.version:
            led = [
                index
                for index in range(count)
                if self.metadata.leader(TopicPartition(topic, index)) >= 0
            ]
            known = self._available[topic] = (self.metadata.version, led)
        available = known[1]
        return available[turn % len(available)] if available else turn % count


def load_partitioner(
    given: Any, metadata: ClusterMetadata
) -> Callable[[str, bytes | None, int], int] | None:
    """Return the function of `partitioner.class`, None for the built-in choice.

    The setting is a function (topic, key, partition count) -> partition, its dotted name, or
    Kafka's RoundRobinPartitioner. Raises ConfigError for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str):
        is_kafkas = given.rpartition(".")[2] == RoundRobinPartitioner.__name__
        name = f"{__name__}.{RoundRobinPartitioner.__name__}" if is_kafkas else given
        given = named_object("partitioner.class", name, "function")
    if isinstance(given, type):
        given = given()
    if isinstance(given, RoundRobinPartitioner):
        given.metadata = metadata
    if not callable(given):
        text = "partitioner.class: give a function (topic, key, partition count) -> partition"
        raise ConfigError(text)
    function: Callable[[str, bytes | None, int], int] = given
    return function


def choose_by_load(queued_bytes: Sequence[int], rng: RandomSource) -> int:
    """Return an index, with a higher probability for shorter queues (adaptive choice of KIP-794).

    With equal queues every index is equally likely.
    """
    longest = max(queued_bytes)
    if longest == min(queued_bytes):
        return min(int(rng.random() * len(queued_bytes)), len(queued_bytes) - 1)
    sums = list(accumulate(longest + 1 - queued for queued in queued_bytes))
    last = len(sums) - 1  # no negative index: this file is compiled
    target = rng.random() * sums[last]
    return next((i for i, total in enumerate(sums) if target < total), last)
