"""Partitioner: the hash that all clients share, and the sticky choice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.clients.producer.partitioner import choose_by_load, murmur2


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_kafka(key: bytes, signed: int) -> None:
    """Known answers, as signed 32-bit numbers."""
    value = murmur2(key)
    assert (value - (1 << 32) if value >= 1 << 31 else value) == signed


def test_the_shorter_queue_is_the_more_likely_choice() -> None:
    """KIP-794: a slow broker gets less; equal queues get the same."""
    rng = random.Random(3)
    loaded = Counter(choose_by_load([1000, 0, 0], rng) for _ in range(3000))
    assert loaded[0] < 30
    assert loaded[1] > 1000
    even = Counter(choose_by_load([5, 5, 5], rng) for _ in range(3000))
    assert min(even.values()) > 800
