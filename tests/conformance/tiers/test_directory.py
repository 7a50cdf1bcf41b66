"""One directory for the tiers of Kafka and Ottla: each serves what the other copied.

Kafka: LocalTieredStorage, RemoteIndexCache.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.server.system.files import RealDirectory
from ottla.storage.batches import whole_batches
from ottla.storage.layout import INDEX_CACHE
from ottla.storage.remote.index_cache import RemoteIndexCache
from ottla.storage.remote.managers.directory import MARKER, ROOT, DirectoryStorage
from ottla.storage.remote.partition_segments import PartitionSegments
from ottla.storage.remote.records import decode_remote_metadata
from ottla.storage.remote.segment import SegmentState
from ottla.storage.remote.storage_manager import (
    IndexKind,
    LocalFile,
    RemoteResourceNotFoundError,
    SegmentFiles,
)
from tests.conformance.kafka import RealKafka, running_kafka
from tests.conformance.tiers.tiered_kafka import tier_properties
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.storage.remote.segment import RemoteSegment
    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
TOPIC = "tiered"
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1048576",
}
VALUE = b"v" * 10_000
COUNT = 600


@pytest.fixture(scope="module", name="node")
def _node(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Run Kafka with a topic of several segments in the tier, some transactions of it aborted."""
    directory = tmp_path_factory.mktemp("tiered")
    properties = tier_properties(kafka, directory / "tier")
    with running_kafka(kafka, directory, properties) as node:
        with Admin(bootstrap_servers=node.bootstrap) as admin:
            topic = NewTopic(TOPIC, partitions=1, replication_factor=1, configs=TOPIC_SETTINGS)
            admin.create_topics([topic])
        with Producer(bootstrap_servers=node.bootstrap, transactional_id="t") as producer:
            producer.init_transactions()
            for first in range(0, COUNT, 50):
                producer.begin_transaction()
                for number in range(first, first + 50):
                    producer.send(TOPIC, VALUE, key=str(number).encode(), partition=0)
                producer.flush()
                (producer.abort_transaction if first % 100 else producer.commit_transaction)()
        copied = directory / "tier" / ROOT
        wait_for(lambda: len(list(copied.rglob("*.log"))) >= 5)
        log_dir = node.log_dir / f"{TOPIC}-0"
        wait_for(lambda: not (log_dir / f"{0:020d}.log").exists())
        sealed = len(list(copied.rglob("*.log")))
        wait_for(lambda: len(remote_segments(node)) == sealed)
        yield node


def remote_segments(node: RealKafka) -> list[RemoteSegment]:
    """Return the wholly copied segments by Kafka's metadata topic."""
    segments = PartitionSegments()
    with Consumer(bootstrap_servers=node.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition("__remote_log_metadata", number) for number in (0, 1)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < ends[one] for one in partitions):
            for record in consumer.poll(timeout=1):
                metadata = decode_remote_metadata(record.value)
                assert metadata is not None
                assert segments.apply(metadata)
    finished = SegmentState.COPY_SEGMENT_FINISHED
    return [one for one in segments.segments() if one.state is finished]


def read_all(node: RealKafka) -> list[bytes]:
    """Return the keys of all committed records, read from the beginning through Kafka."""
    partition = TopicPartition(TOPIC, 0)
    keys: list[bytes] = []
    with Consumer(
        bootstrap_servers=node.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            keys += [record.key or b"" for record in consumer.poll(timeout=1)]
    return keys


def storage_over(tier: Path) -> DirectoryStorage:
    """Return our manager over a directory."""
    storage = DirectoryStorage(lambda path: RealDirectory(path, create=True))
    storage.configure({"dir": str(tier), "broker.id": "1"})
    return storage


def test_we_read_what_kafka_copied(node: RealKafka, tmp_path: Path) -> None:
    """Segments follow each other, with valid batches and indexes; aborts are where Kafka says."""
    storage = storage_over(node.directory / "tier")
    cache = RemoteIndexCache(
        RealDirectory(str(tmp_path)),
        storage,
        max_bytes=1 << 30,
        now_ms=lambda: 0,
        new_lock=threading.Lock,
    )
    cache.load()
    following = 0
    segments = remote_segments(node)
    assert len(segments) >= 5
    for segment in segments:
        with storage.read_segment(segment, 0) as stream:
            data = stream.read()
        headers = whole_batches(data)
        assert sum(header.size for header in headers) == segment.size_bytes == len(data)
        assert (segment.start_offset, headers[0].base_offset) == (following, following)
        assert headers[-1].last_offset == segment.end_offset
        following = segment.end_offset + 1
        with cache.opened(segment) as indexes:
            aborted = indexes.transaction_index.entries()
            last = indexes.offset_index.last()
            assert segment.start_offset <= last.offset <= segment.end_offset
            assert last.position < segment.size_bytes
            assert indexes.time_index.last().timestamp <= segment.max_timestamp_ms
        assert bool(aborted) != segment.is_transaction_index_empty
        with storage.read_index(segment, IndexKind.LEADER_EPOCH) as stream:
            assert stream.read().startswith(b"0\n1\n0 0\n")
        with storage.read_segment(segment, 61, 70) as stream:
            assert stream.read() == data[61:71]


def test_the_cached_indexes_are_named_as_kafkas(node: RealKafka, tmp_path: Path) -> None:
    """Kafka fetches indexes when it serves the tier; ours are the same files."""
    assert read_all(node) == [
        str(number).encode()
        for first in range(0, COUNT, 100)
        for number in range(first, first + 50)
    ]
    theirs = {
        path.name: path.read_bytes() for path in sorted((node.log_dir / INDEX_CACHE).iterdir())
    }
    cache = RemoteIndexCache(
        RealDirectory(str(tmp_path)),
        storage_over(node.directory / "tier"),
        max_bytes=1 << 30,
        now_ms=lambda: 0,
        new_lock=threading.Lock,
    )
    cache.load()
    for segment in remote_segments(node):
        with cache.opened(segment):
            pass
    ours = {path.name: path.read_bytes() for path in sorted((tmp_path / INDEX_CACHE).iterdir())}
    assert theirs
    assert theirs.items() <= ours.items()


def test_kafka_reads_what_we_copied(node: RealKafka, tmp_path: Path) -> None:
    """All segments are deleted and copied again through our manager: same names, bytes, answers."""
    tier = node.directory / "tier"
    before = {path.relative_to(tier): path.read_bytes() for path in tier.rglob("*.*")}
    expected = read_all(node)
    source, storage = RealDirectory(str(tmp_path)), storage_over(tier)
    segments = remote_segments(node)
    copies = [_local_files(storage, source, segment) for segment in segments]
    node.stop()
    for segment in segments:
        storage.delete_segment(segment)
    assert not list(tier.rglob("*.log"))
    for segment, files in zip(segments, copies, strict=True):
        storage.copy_segment(segment, files)
    assert {path.relative_to(tier): path.read_bytes() for path in tier.rglob("*.*")} == before
    DirectoryStorage(RealDirectory).configure({"dir": str(tier), "cluster.id": "ours"})
    assert (tier / MARKER).exists()  # Kafka ignores it
    shutil.rmtree(node.log_dir / INDEX_CACHE)
    node.start()
    assert read_all(node) == expected


def _local_files(
    storage: DirectoryStorage, source: RealDirectory, segment: RemoteSegment
) -> SegmentFiles:
    """Write the files of a segment into a directory of logs."""

    def local(kind: IndexKind) -> LocalFile:
        with storage.read_index(segment, kind) as stream:
            return _written(source, f"{segment.start_offset}.{kind}", stream.read())

    with storage.read_segment(segment, 0) as stream:
        log = _written(source, f"{segment.start_offset}.log", stream.read())
    try:
        transaction_index = local(IndexKind.TRANSACTION)
    except RemoteResourceNotFoundError:
        transaction_index = None
    with storage.read_index(segment, IndexKind.LEADER_EPOCH) as stream:
        leader_epochs = stream.read()
    return SegmentFiles(
        log=log,
        offset_index=local(IndexKind.OFFSET),
        time_index=local(IndexKind.TIMESTAMP),
        transaction_index=transaction_index,
        producer_snapshot=local(IndexKind.PRODUCER_SNAPSHOT),
        leader_epochs=leader_epochs,
    )


def _written(source: RealDirectory, name: str, data: bytes) -> LocalFile:
    source.write_file_atomically(name, data)
    return LocalFile(source, name, len(data))
