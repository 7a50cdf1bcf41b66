"""Little memory, values that can never be sent, and topics whose partitions change."""

from __future__ import annotations

import pytest

from ottla.clients.producer.batches import Deliveries
from ottla.clients.producer.partitioner import RoundRobinPartitioner, key_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import RecordBatch
from ottla.types import TopicPartition
from tests.clients.producer.test_producer import T0, Rig


def test_less_memory_than_a_batch_is_enough() -> None:
    """buffer.memory below batch.size: batches are smaller, records do not wait."""
    rig = Rig(batch_size=16_384, buffer_memory=1000)
    for number in range(30):
        delivery = rig.send(b"%d" % number)
        rig.finish()
        assert delivery.metadata.offset == number
    assert rig.accumulator.used_bytes == 0


@pytest.mark.parametrize("bad", [3, b"x" * 900])
def test_one_bad_value_of_many_is_found_before_any_is_queued(bad: object) -> None:
    """Otherwise the values before it would be queued without a handle."""
    rig = Rig(max_request_size=800)
    with pytest.raises((TypeError, KafkaError)):
        rig.accumulator.encoded("t", [b"one", "two", None, bad, b"four"])
    with pytest.raises((TypeError, KafkaError)):
        rig.accumulator.encoded("t", [b"one", bad])
    rig.accumulator.to_value = str.encode
    with pytest.raises((TypeError, KafkaError)):
        rig.accumulator.encoded("t", ["one", bad])


def test_many_values_of_all_sorts_are_stored() -> None:
    """Bytes stay the object that they were; text and nothing are encoded, or serialised."""
    rig = Rig()
    plain = (b"one", b"two")
    assert rig.accumulator.encoded("t", plain) is plain
    values = rig.accumulator.encoded("t", ["one", None, bytearray(b"two")])
    assert rig.accumulator.append_many("t", values, 0, Deliveries()) == 3
    rig.accumulator.to_value = lambda text: text.upper().encode()
    assert rig.accumulator.encoded("t", ["a", "b"]) == [b"A", b"B"]
    rig.finish()
    assert rig.cluster.logs[T0].values == [b"one", None, b"two"]


def _recreate(rig: Rig, partitions: int) -> None:
    for key in list(rig.cluster.leaders):
        del rig.cluster.leaders[key], rig.cluster.logs[key]
    rig.cluster.create("t", partitions)
    rig.sim.client.metadata.mark_stale()
    rig.sim.run(lambda: rig.sim.client.metadata.partition_count("t") == partitions)


def test_a_topic_made_again_with_fewer_partitions_gets_its_records() -> None:
    """Keys, the sticky choice and the range check go by the number that it has now."""
    rig = Rig(partitions=6)
    keys = [b"k%d" % number for number in range(12)]
    for partition in range(6):
        rig.send(b"old", partition)
    rig.finish()
    _recreate(rig, 2)
    keyed = [rig.send(b"v", None, key) for key in keys]
    free = [rig.send(b"v" * 150, None) for _ in range(12)]
    rig.finish()
    assert not any(one.error for one in (*keyed, *free))
    places = [one.metadata.partition for one in keyed]
    assert places == [key_hash(key) % 2 for key in keys]
    assert rig.accumulator.append("t", b"v", None, 2, 0) is None  # waits: it may get more
    with pytest.raises(KafkaError, match=r"it has 2 partition\(s\)") as refused:
        rig.send(b"v", -1)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    _recreate(rig, 4)
    assert rig.send(b"v", 3).batch.topic_partition == TopicPartition("t", 3)
    rig.finish()


def test_round_robin_goes_round_the_partitions_that_have_a_leader() -> None:
    """As Kafka's: only while none has a leader are records dealt to all."""
    rig = Rig(partitions=4, partitioner_class=RoundRobinPartitioner)
    metadata = rig.sim.client.metadata

    def dealt(count: int) -> list[int]:
        return [rig.send(b"v", None).batch.topic_partition.partition for _ in range(count)]

    assert dealt(4) == [0, 1, 2, 3]
    for partition in (0, 2):
        rig.cluster.leaders[TopicPartition("t", partition)] = -1
    metadata.mark_stale()
    rig.sim.run(lambda: metadata.leader(T0) < 0)
    assert dealt(4) == [1, 3, 1, 3]
    for partition in (1, 3):
        rig.cluster.leaders[TopicPartition("t", partition)] = -1
    metadata.mark_stale()
    rig.sim.run(lambda: metadata.leader(TopicPartition("t", 3)) < 0)
    assert dealt(4) == [0, 1, 2, 3]


def test_a_key_serializer_may_return_none() -> None:
    """Its record has no key, and goes to any partition."""
    rig = Rig(key_serializer=lambda key: key or None)
    for key in (b"", b"k"):
        rig.accumulator.append("t", b"v", key, None, rig.sim.now_ms)
    rig.finish()
    batch = RecordBatch(rig.cluster.logs[T0].batches[0])
    assert [record.key for record in batch.records()] == [None, b"k"]
