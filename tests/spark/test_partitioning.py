"""Hashes of whole key columns equal the producer's, key by key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from ottla.clients.producer.partitioner import key_hash, murmur2  # noqa: E402
from ottla.spark.writing import data_and_offsets, murmur2_column, partitions_for_keys  # noqa: E402


@settings(deadline=None)  # the first call loads numpy's parts
@given(st.lists(st.binary(max_size=70), max_size=60), st.integers(0, 5))
def test_hashes_of_a_column(keys: list[bytes], skipped: int) -> None:
    """Every length of tail, empty keys and sliced arrays included."""
    column = pa.array(keys, pa.binary()).slice(skipped)
    assert murmur2_column(*data_and_offsets(column)).tolist() == [
        murmur2(key) for key in keys[skipped:]
    ]


def test_partitions_of_a_column() -> None:
    """The partition is the one Kafka's clients choose."""
    keys = [f"key-{i}".encode() for i in range(500)]
    found = partitions_for_keys(*data_and_offsets(pa.array(keys, pa.binary())), 7)
    assert found.tolist() == [key_hash(key) % 7 for key in keys]
