"""Which partition a record goes to.

Compiled by Cython with `partitioner.pxd` beside it; runs uncompiled too.

Kafka: org.apache.kafka.clients.producer.internals.BuiltInPartitioner,
org.apache.kafka.common.utils.Utils.murmur2. KIP-480, KIP-794. Hot path: benchmarks/clients.py.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.client import Random

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
CACHED_KEYS = 65_536


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that every Kafka client uses for keys, unsigned."""
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
    """Return the positive hash of a key; keys come back, so answers are kept."""
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, count: int) -> int:
    """Return the partition of a key among count."""
    return key_hash(key) % count


def choose_by_load(queued_bytes: Sequence[int], rng: Random) -> int:
    """Return an index, the likelier the shorter its queue is (KIP-794's adaptive choice).

    With equal queues every index is equally likely.
    """
    longest = max(queued_bytes)
    if longest == min(queued_bytes):
        return min(int(rng.random() * len(queued_bytes)), len(queued_bytes) - 1)
    sums = list(accumulate(longest + 1 - queued for queued in queued_bytes))
    last = len(sums) - 1  # no negative index: this file is compiled
    target = rng.random() * sums[last]
    return next((i for i, total in enumerate(sums) if target < total), last)
