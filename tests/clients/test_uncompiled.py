"""The compiled modules of the clients against themselves, uncompiled.

Kafka: no counterpart.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from ottla.clients.consumer import record_decoder
from ottla.clients.metadata import ClusterMetadata
from ottla.clients.producer import accumulator, batches, partitioner
from ottla.clients.settings import PRODUCER, read_settings
from ottla.records import scan
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SEED = 7


def _plain(compiled: ModuleType) -> ModuleType:
    """Run a module's text in the interpreter."""
    name = compiled.__name__
    path = Path(ottla.__file__).parent / f"{'/'.join(name.split('.')[1:])}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plain() -> Iterator[dict[str, ModuleType]]:
    """Yield the uncompiled modules by their last name; they import each other."""
    compiled = (scan, partitioner, batches, accumulator, record_decoder)
    try:
        yield {one.__name__.rpartition(".")[2]: _plain(one) for one in compiled}
    finally:
        for one in compiled:
            sys.modules[one.__name__] = one


class _Metadata(ClusterMetadata):
    def partition_count(self, topic: str) -> int:
        return 5 if topic == "t" else 0

    def leader(self, partition: TopicPartition) -> int:
        return partition.partition - 1


def _appended(module: Any, batches_module: Any) -> list[Any]:
    """Append the same records of all sorts and return where each went, and what was refused."""
    settings = read_settings(PRODUCER, None, {"batch_size": 400, "buffer_memory": 60_000})
    metadata = _Metadata(max_age_ms=1, allow_auto_create=True)
    made = module.Accumulator(
        settings, metadata, rng=random.Random(SEED), wake=lambda: None, wall_ns=lambda: 0
    )
    rng = random.Random(SEED)
    seen: list[Any] = []
    for number in range(500):
        key = rng.choice([None, b"k%d" % (number % 9), "text"])
        value = rng.choice([None, bytes(number % 70), "text", bytearray(b"x")])
        partition = rng.choice([None, None, 3, 7, -1])
        topic = rng.choice(["t", "t", "t", "unknown"])
        headers = rng.choice([(), {"a": b"1"}, [("b", None)]])
        try:
            delivery = made.append(topic, value, key, partition, rng.choice([None, 5]), headers)
        except Exception as error:
            seen.append(repr(error))
            continue
        if delivery is None:
            seen.append(made.used_bytes)
        else:
            batch = delivery.batch
            seen.append((batch.topic_partition, delivery.position, batch.size, batch.records[-1]))
    deliveries = batches_module.Deliveries()
    remaining = made.append_many("t", [bytes(50)] * 2000, 0, deliveries)
    taken = [made.take(queue) for queue in list(made.active)]
    return [*seen, remaining, len(deliveries), [one and len(one.records) for one in taken]]


def test_appends_are_the_same(plain: dict[str, ModuleType]) -> None:
    """Records go to the same batches, and the same ones are refused, compiled or not."""
    slow = _appended(plain["accumulator"], plain["batches"])
    assert _appended(accumulator, batches) == slow
    assert any(isinstance(one, str) for one in slow)
    assert any(isinstance(one, int) for one in slow)


def test_hashes_are_the_same(plain: dict[str, ModuleType]) -> None:
    """Keys of every length have the same hash, compiled or not."""
    rng = random.Random(SEED)
    for size in range(70):
        key = rng.randbytes(size)
        assert partitioner.murmur2(key) == plain["partitioner"].murmur2(key)


def test_records_are_decoded_alike(plain: dict[str, ModuleType]) -> None:
    """Consumer records are the same, compiled or not, and as the general way makes them."""
    payload = bytearray()
    given = [(1000 + n, None if n % 3 else b"k", bytes(n) if n % 4 else None, ()) for n in range(9)]
    scan.append_records(payload, given, 1000)
    for stamp in (None, 77):
        arguments = (bytes(payload), 9, 50, 1000, stamp)
        fast = record_decoder.simple_records(*arguments, "t", 2)
        expected = record_decoder.with_topic(
            TopicPartition("t", 2), scan.decode_records(*arguments)
        )
        assert fast == expected
        assert plain["record_decoder"].simple_records(*arguments, "t", 2) == [
            tuple(one) for one in expected
        ]


def test_what_is_not_simple_is_left_to_the_general_way(plain: dict[str, ModuleType]) -> None:
    """Headers, wrong counts and broken bytes give None, compiled or not; nothing is overrun."""
    payload = bytearray()
    scan.append_records(payload, [(1, b"k", b"v", ()), (2, None, b"w", ())], 0)
    whole = bytes(payload)
    headed = bytearray()
    scan.append_records(headed, [(1, None, b"v", (("h", b"x"),))], 0)
    bad = [(bytes(headed), 1, 0, 0), (whole, 1, 0, 0), (whole, 3, 0, 0), (whole, -1, 0, 0)]
    bad += [(whole, 2, (1 << 62) + 1, 0)]
    bad += [(whole, 2, 0, (1 << 63) - 1), (whole + b"\x00", 2, 0, 0)]
    bad += [(whole[:cut], 2, 0, 0) for cut in range(len(whole))]
    for arguments in bad:
        for module in (record_decoder, plain["record_decoder"]):
            assert module.simple_records(*arguments, None, "t", 0) is None
