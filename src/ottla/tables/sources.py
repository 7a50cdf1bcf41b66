"""Where a scan reads: log directories of nodes that may run or not, or the nodes themselves.

Kafka: none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from ottla.clients.cluster_reader import ClusterReader
from ottla.clients.range_fetcher import OffsetRange, RangeFetcher
from ottla.clients.settings import COMMON, read_settings
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.storage.directories.checkpoints import decode_offsets
from ottla.storage.directories.partition_dir_names import is_log, partition_of, read_topic_id
from ottla.storage.directory import join
from ottla.storage.layout import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
)
from ottla.storage.log.leader_epochs import decode_leader_epochs
from ottla.storage.remote.records import METADATA_TOPIC
from ottla.tables.partition_files import FileReader, PartitionFiles, SkipRule
from ottla.tables.read_only import ReadOnlyDirectory
from ottla.tables.tier import RemoteTopic
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ottla.clients.cluster_reader import TopicLayout
    from ottla.clients.range_fetcher import Chunk
    from ottla.types import Uuid

T = TypeVar("T")
POLL_TIMEOUT_MS: Final = 60_000
"""A read from brokers fails after this time without progress."""
FETCH_BYTES: Final = 4 * 1024 * 1024


class RangeReader(Protocol):
    """Reads one range of a partition's offsets in chunks; the caller reports its progress."""

    position: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield complete batches up to the end of the range."""

    def advance(self, next_offset: int) -> None:
        """Continue at next_offset."""


class Bounds(NamedTuple):
    """The first offset of a partition and the one after its last readable record."""

    start: int
    end: int


class TopicSource(Protocol):
    """The partitions of one topic; methods raise KafkaError."""

    topic_id: Uuid | None
    """None where it is unknown."""

    def bounds(
        self, partitions: Sequence[int] | None = None, *, read_committed: bool
    ) -> dict[int, Bounds]:
        """Return the offsets of partitions that can be read now, or of all.

        KafkaError UNKNOWN_TOPIC_OR_PARTITION for one that does not exist.
        """

    def offset_at(self, partition: int, timestamp_ms: int, bounds: Bounds) -> int:
        """Return an offset before which no record is as new as a time; the end without one.

        The record at the offset is as new, if there is one.
        """

    def reader(
        self, offset_range: OffsetRange, *, read_committed: bool, skip_rule: SkipRule
    ) -> RangeReader:
        """Return a reader of a range."""


class DirectorySource:
    """A topic in log directories; of several copies of a partition the most advanced is read."""

    def __init__(
        self,
        topic: str,
        data_dirs: Sequence[str | Path],
        tier: str | Path | Mapping[str, str] | None = None,
    ) -> None:
        """Find the topic's partitions, also in remote storage.

        KafkaError UNKNOWN_TOPIC_OR_PARTITION when there are none, INCONSISTENT_TOPIC_ID when they
        are of two topics of this name.
        """
        self.topic = topic
        self.topic_id: Uuid | None = None
        remote = None if tier is None else _tier(tier, data_dirs)
        self._partitions: dict[int, PartitionFiles] = {}
        names: set[str] = set()
        for root in map(Path, data_dirs):
            directory = ReadOnlyDirectory(root)
            found = list(_partitions_in(directory))
            names |= {partition.topic for partition in found}
            offsets = _Checkpoints(directory)
            for partition in found:
                if partition.topic == topic:
                    topic_id = read_topic_id(cast("Any", directory), str(partition))
                    self._check_topic_id(topic_id, root)
                    self._add(offsets.files_of(partition, topic_id, remote))
        if not self._partitions:
            where = ", ".join(map(str, data_dirs))
            near = ", ".join(sorted(name for name in names if not name.startswith("__"))[:10])
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {topic!r} in {where}" + (f"; there are {near}" if near else ""),
            )

    def _check_topic_id(self, topic_id: Uuid | None, root: Path) -> None:
        """Raise KafkaError for a copy of a topic that was deleted, whose log may be longer."""
        if topic_id is not None and self.topic_id not in (None, topic_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"topic {self.topic!r} has the id {topic_id} in {root}, and {self.topic_id} in "
                "another directory: it was deleted and created again; give directories of one",
            )
        self.topic_id = topic_id or self.topic_id

    def _add(self, files: PartitionFiles) -> None:
        other = self._partitions.get(files.partition.partition)
        if other is None or other.end_offset < files.end_offset:
            self._partitions[files.partition.partition] = files

    def bounds(
        self, partitions: Sequence[int] | None = None, *, read_committed: bool
    ) -> dict[int, Bounds]:
        """Return the offsets up to the high watermark, or the last stable offset."""
        found: dict[int, Bounds] = {}
        for number in _chosen(self.topic, self._partitions, partitions):
            files, end = self._partitions[number], self._partitions[number].end_offset
            stable = files.last_stable_offset(end) if read_committed else end
            found[number] = Bounds(files.start_offset, stable)
        return found

    def offset_at(self, partition: int, timestamp_ms: int, bounds: Bounds) -> int:
        """Return the first offset of a record as new as a time; the end without one."""
        from ottla.tables.arrow import ColumnReader

        files = self._partitions[partition]
        start = files.offset_at(timestamp_ms, bounds.end)
        if start is None:
            return bounds.end
        offset_range = OffsetRange(files.partition, max(start, bounds.start), bounds.end)
        reader = FileReader(files, offset_range, read_committed=False, skip_rule=SkipRule())
        columns = ColumnReader(("offset",), files.partition)
        for chunk in reader.chunks():
            found = columns.first_at(chunk, reader.position, bounds.end, timestamp_ms)
            if found is not None:
                return found
        return bounds.end

    def reader(
        self, offset_range: OffsetRange, *, read_committed: bool, skip_rule: SkipRule
    ) -> RangeReader:
        """Return a reader of segment files."""
        return FileReader(
            self._partitions[offset_range.partition.partition],
            offset_range,
            read_committed=read_committed,
            skip_rule=skip_rule,
        )


class _Checkpoints:
    """The offsets that a node has noted for the logs of a directory."""

    def __init__(self, directory: ReadOnlyDirectory) -> None:
        self._directory = directory
        self._starts = self._read(LOG_START_CHECKPOINT, decode_offsets) or {}
        self._watermarks = self._read(HIGH_WATERMARK_CHECKPOINT, decode_offsets)

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """Return a checkpoint's content; None without the file, as in a copy of logs alone.

        CorruptMessage for a damaged one: without it deleted, uncommitted or foreign records would
        be read.
        """
        try:
            return decode(self._directory.read_file(path))
        except FileNotFoundError:
            return None
        except CorruptMessage as error:
            raise CorruptMessage(f"{self._directory.root / path}: {error.message}") from error

    def files_of(
        self, partition: TopicPartition, topic_id: Uuid | None, tier: RemoteTopic | None
    ) -> PartitionFiles:
        """Return a partition's files; one that its checkpoint does not know yet has no records."""
        watermarks = self._watermarks
        remote = None
        if tier is not None:
            path = join(str(partition), LEADER_EPOCH_CHECKPOINT)
            epochs = self._read(path, decode_leader_epochs)
            entries = [] if epochs is None else epochs.entries
            remote = tier.of_partition(topic_id, partition.partition, entries)
        return PartitionFiles(
            self._directory,
            partition,
            log_start_offset=self._starts.get(partition, 0),
            high_watermark=None if watermarks is None else watermarks.get(partition, 0),
            tier=remote,
        )


def _tier(place: str | Path | Mapping[str, str], data_dirs: Sequence[str | Path]) -> RemoteTopic:
    """Open remote storage with the metadata of the nodes of these directories."""
    from ottla.tables.arrow import ColumnReader

    def values() -> Iterator[bytes]:
        source = DirectorySource(METADATA_TOPIC, data_dirs)
        for number, found in source.bounds(read_committed=False).items():
            part = TopicPartition(METADATA_TOPIC, number)
            offsets = OffsetRange(part, found.start, found.end)
            reader = source.reader(offsets, read_committed=False, skip_rule=SkipRule())
            columns = ColumnReader(("value",), part)
            for chunk in reader.chunks():
                for parsed in columns.parse(chunk, reader.position, found.end):
                    reader.advance(parsed.next_offset)
                    if parsed.batch is not None:
                        yield from parsed.batch["value"].drop_null().to_pylist()

    return RemoteTopic(place, values())


def _partitions_in(directory: ReadOnlyDirectory) -> Iterator[TopicPartition]:
    """Yield the partitions with a log in a directory; KafkaError for one that is none of a node."""
    try:
        names = directory.list()
    except OSError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{directory.root}: {error.strerror or error}"
        ) from error
    is_of_a_node = META_PROPERTIES in names
    for name in names:
        partition = partition_of(name)
        if (
            partition is not None
            and directory.is_directory(name)
            and is_log(cast("Any", directory), name)
        ):
            is_of_a_node = True
            yield partition
    if not is_of_a_node:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{directory.root} is no log directory of Kafka or Ottla: it has neither "
            f"{META_PROPERTIES} nor logs; give a directory of log.dirs",
        )


def _chosen(topic: str, existing: Iterable[int], partitions: Sequence[int] | None) -> Sequence[int]:
    numbers = sorted(existing)
    for number in partitions or ():
        if number not in numbers:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {number} here; there are {numbers}",
            )
    return numbers if partitions is None else partitions


class _FetchOptions(NamedTuple):
    """The options of a range fetcher."""

    isolation_level: int
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    partition_max_bytes: int = FETCH_BYTES
    fail_on_data_loss: bool = False


class ClusterSource:
    """A topic of running brokers."""

    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        """Find the topic; KafkaError when it is missing or no broker answers."""
        self.topic = topic
        self._config = dict(config)
        with self._open() as cluster:
            self._layout: TopicLayout = cluster.named_topics([topic])[topic]
        self.topic_id: Uuid | None = self._layout.topic_id or None

    def _open(self) -> ClusterReader:
        return ClusterReader(read_settings(COMMON, self._config, {}), first_answer_ms=10_000)

    def bounds(
        self, partitions: Sequence[int] | None = None, *, read_committed: bool
    ) -> dict[int, Bounds]:
        """Return the offsets up to the high watermark, or the last stable offset."""
        numbers = _chosen(self.topic, self._layout.leaders, partitions)
        parts = [TopicPartition(self.topic, number) for number in numbers]
        with self._open() as cluster:
            starts = cluster.offsets(dict.fromkeys(parts, EARLIEST_TIMESTAMP))
            ends = cluster.offsets(
                dict.fromkeys(parts, LATEST_TIMESTAMP), isolation_level=int(read_committed)
            )
        return {part.partition: Bounds(starts[part], ends[part]) for part in parts}

    def offset_at(self, partition: int, timestamp_ms: int, bounds: Bounds) -> int:
        """Return the first offset of a record as new as a time; the end without one."""
        if timestamp_ms < 0:  # in a request -1 means the end, -2 the start, and so on
            return bounds.start
        part = TopicPartition(self.topic, partition)
        with self._open() as cluster:
            found = cluster.offsets({part: timestamp_ms})[part]
        return bounds.end if found < 0 else found

    def reader(
        self,
        offset_range: OffsetRange,
        *,
        read_committed: bool,
        skip_rule: SkipRule,  # noqa: ARG002 - brokers answer all batches
    ) -> RangeReader:
        """Return a reader that fetches."""
        return RangeFetcher(
            self._open(),
            _FetchOptions(int(read_committed)),
            offset_range,
            str(self.topic_id) if self.topic_id else "",
            self._layout.leaders.get(offset_range.partition.partition),
        )
