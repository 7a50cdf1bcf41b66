"""Kafka's default partitioner for the rows of an Arrow batch, vectorized.

Kafka: org.apache.kafka.common.utils.Utils.murmur2, .clients.producer.internals.BuiltInPartitioner.
Hot path: benchmarks/spark.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MULTIPLIER = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def murmur2_column(data: NDArray[np.uint8], offsets: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the hash of data[offsets[i]:offsets[i+1]] for every i.

    Rows are ordered by descending length, so that step k processes all keys with a k-th word.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    words = lengths >> 2
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    value = _SEED ^ lengths.astype(np.uint32)
    longest = int(words[0]) if len(words) else 0
    # the number of rows with more than k words, for every k
    counts = len(words) - np.searchsorted(words[::-1], np.arange(longest), side="right")
    with np.errstate(over="ignore"):
        for step in range(longest):
            count = int(counts[step])
            part = _word(padded, starts[:count] + 4 * step) * _MULTIPLIER
            part = (part ^ (part >> np.uint32(24))) * _MULTIPLIER
            value[:count] = value[:count] * _MULTIPLIER ^ part
        value = _mix_tail(value, padded, starts + 4 * words, lengths & 3)
        value = (value ^ (value >> np.uint32(13))) * _MULTIPLIER
    value ^= value >> np.uint32(15)
    result = np.empty_like(value)
    result[order] = value
    return result


def _word(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mix_tail(
    value: NDArray[np.uint32],
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    left: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Mix in the one to three bytes after the last whole word."""
    mask = ((np.int64(1) << (8 * left)) - 1).astype(np.uint32)
    mixed: NDArray[np.uint32] = (value ^ (_word(data, at) & mask)) * _MULTIPLIER
    return np.where(left > 0, mixed, value)


def partitions_for_keys(
    data: NDArray[np.uint8], offsets: NDArray[Any], count: int
) -> NDArray[np.int32]:
    """Return the partition among count that Kafka's clients choose for each key."""
    positive = murmur2_column(data, offsets) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(count)).astype(np.int32)
