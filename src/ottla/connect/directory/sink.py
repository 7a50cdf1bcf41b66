"""Topics as files, each record once: the name of a file has its first and its last offset.

A file is complete from its first moment, by the rename of a temporary file that is on the disk. The
names alone tell where a partition goes on, whatever the group has committed.

Kafka: none.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SinkTask, UniformSinkConnector
from ottla.connect.directory.formats import file_suffix, open_writer, shape_of
from ottla.connect.directory.settings import SINK
from ottla.connect.errors import ConnectException, DataException
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ottla.config.definition import ConfigDefinitions
    from ottla.connect.records import SinkRecord

_LOCK: Final = ".lock"
_LOCK_S: Final = 60.0
"""Maximum time for the lock: a task has it for a listing, a rename and a sync of the directory."""
_LOCK_POLL_S: Final = 0.02
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")
_OFFSETS: Final = re.compile(r"\d+\+(\d+)\.\w.*")
"""The first and the last offset in a name, and its end."""


def topic_directory(directory: Path, topic: str) -> Path:
    """Return the directory of a topic; ConnectException for a name that Kafka does not allow.

    It comes from brokers and from requests, and must not lead elsewhere.
    """
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise ConnectException(f"{topic[:80]!r} is no name of a topic")
    return directory / topic


def next_offset(directory: Path, partition: TopicPartition) -> int | None:
    """Return the offset after the last one in the names of a partition's files, None without any.

    Topics have no `+` in their names.
    """
    return _offset_after(_names(directory, partition.topic), partition)


def _names(directory: Path, topic: str) -> list[str]:
    """Return the names alone: there may be many files, and each new one takes a listing."""
    try:
        return os.listdir(topic_directory(directory, topic))  # noqa: PTH208
    except FileNotFoundError:
        return []


def _offset_after(names: Sequence[str], partition: TopicPartition) -> int | None:
    start = f"{partition.topic}+{partition.partition}+"
    ends = [_OFFSETS.fullmatch(it, len(start)) for it in names if it.startswith(start)]
    lasts = [int(match[1]) for match in ends if match]
    return max(lasts) + 1 if lasts else None


class Disk:
    """The steps after which a crash may come."""

    def make_directory(self, path: Path) -> None:
        """Make a directory that stays; those above it must stay, too."""
        if not path.is_dir():
            if path != path.parent:
                self.make_directory(path.parent)
            path.mkdir(exist_ok=True)
            self.sync_directory(path.parent)

    def create(self, path: Path) -> BinaryIO:
        """Open a new file."""
        return path.open("xb")

    def sync(self, file: BinaryIO) -> None:
        """Bring a file to the disk."""
        file.flush()
        os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its name."""
        source.rename(target)

    def sync_directory(self, path: Path) -> None:
        """Bring names to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _PartFile:
    """A temporary file of one partition."""

    def __init__(
        self, task: DirectorySinkTask, partition: TopicPartition, first: SinkRecord
    ) -> None:
        values = task.values
        self.partition, self.first = partition, first.offset
        self.shape = shape_of(values["format"], first)
        self.next_offset, self.count, self.bytes = first.offset, 0, 0
        self.start_s = task.now_s()
        self._disk = task.disk
        self._directory = topic_directory(task.directory, partition.topic)
        self._suffix = file_suffix(values["format"], values["compression"])
        self._disk.make_directory(self._directory)
        # a name that no other task has, as one that was fenced may still write
        name = f"{_temporary(partition)}{first.offset}+{secrets.token_hex(4)}"
        self._path = self._directory / name
        self._file = self._disk.create(self._path)
        try:
            self._writer = open_writer(
                values["format"], values["compression"], self.shape, self._file
            )
        except BaseException:
            self._path.unlink(missing_ok=True)
            self._file.close()
            raise

    def write(self, record: SinkRecord) -> None:
        self.bytes += self._writer.write(record)
        self.count += 1
        self.next_offset = record.offset + 1

    def finish(self) -> None:
        """Make the file complete; ConnectException if another task has written its records."""
        self._writer.close()
        self._disk.sync(self._file)
        self._file.close()
        # from the look at the names until there is a new one, no other task gives names
        with _locked(self._directory):
            written = next_offset(self._directory.parent, self.partition)
            if written is not None and written > self.first:
                raise ConnectException(
                    f"{self.partition} is written to {self._directory} by another task, up to "
                    f"offset {written - 1}; a restart goes on after it"
                )
            topic, partition = self.partition
            name = f"{topic}+{partition}+{self.first:019d}+{self.next_offset - 1:019d}"
            self._disk.rename(self._path, self._directory / f"{name}{self._suffix}")
            self._disk.sync_directory(self._directory)

    def discard(self) -> None:
        """Forget the records, which are read again."""
        try:
            self._path.unlink(missing_ok=True)
        finally:
            # a full disk refuses what is still in memory, which is of no use
            with suppress(Exception):
                self._writer.close()
            with suppress(OSError):
                self._file.close()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the names of a directory; ConnectException if another task never unlocks them."""
    end_s = time.monotonic() + _LOCK_S
    with (directory / _LOCK).open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end_s:
                    raise ConnectException(
                        f"{directory / _LOCK} was locked for {_LOCK_S:g} s by a task that hangs"
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield


def _temporary(partition: TopicPartition) -> str:
    return f".{partition.topic}+{partition.partition}+"


class DirectorySinkTask(SinkTask):
    """Writes the files of its partitions."""

    disk: Disk = Disk()
    now_s = staticmethod(time.monotonic)

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self.values: dict[str, Any] = SINK.parse(config)
        self.directory = Path(self.values["directory"]).absolute()
        self._files: dict[TopicPartition, _PartFile] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Go on after the last file, and remove what a crash has left."""
        topics = {it.topic for it in partitions}
        temporary = tuple(map(_temporary, partitions))
        for topic in topics:
            for name in _names(self.directory, topic):
                if name.startswith(temporary):
                    (self.directory / topic / name).unlink(missing_ok=True)
        # after that: a task whose temporary file is gone gives no name to its records
        names = {it: _names(self.directory, it) for it in topics}
        # the offsets are committed, but a crash may have come before the names were on the disk
        for topic in topics:
            if (self.directory / topic).is_dir():
                self.disk.sync_directory(self.directory / topic)
                self.disk.sync_directory(self.directory)
        for partition in partitions:
            offset = _offset_after(names[partition.topic], partition)
            if offset is not None:
                self.context.seek(partition, offset)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write records, and complete the files that are due."""
        for record in records:
            self._write(record)
        interval_ms = self.values["rotate.interval.ms"]
        if interval_ms:
            end_s = self.now_s() - interval_ms / 1000
            for partition, file in list(self._files.items()):
                if file.start_s <= end_s:
                    self._finish(partition)

    def _write(self, record: SinkRecord) -> None:
        partition = record.original  # topic and partition whatever transforms made of them
        if partition is None:
            partition = TopicPartition(record.topic, record.partition or 0)
        file = self._files.get(partition)
        try:
            if file is not None and file.shape != shape_of(self.values["format"], record):
                self._finish(partition)
                file = None
            if file is None:
                file = self._files[partition] = _PartFile(self, partition, record)
            file.write(record)
        except DataException as error:
            self.context.report_errant(record, error)
            return
        limit = self.values["rotate.bytes"]
        if file.count >= self.values["flush.size"] or 0 < limit <= file.bytes:
            self._finish(partition)

    def _finish(self, partition: TopicPartition) -> None:
        file = self._files[partition]
        if file.count:
            file.finish()  # if it fails, the last commit must still stop before these records
        else:
            file.discard()
        del self._files[partition]

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Commit up to the first record that has no complete file yet."""
        return {
            partition: min(offset, self._files[partition].first)
            if partition in self._files
            else offset
            for partition, offset in offsets.items()
        }

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget incomplete files: whoever has the partitions next reads their records again."""
        for partition in partitions:
            if partition in self._files:
                self._files.pop(partition).discard()

    def stop(self) -> None:
        """Forget all incomplete files."""
        self.close(tuple(getattr(self, "_files", ())))


class DirectorySinkConnector(UniformSinkConnector):
    """Writes topics to a directory."""

    version: ClassVar[str] = PLUGIN_VERSION
    definitions: ClassVar[ConfigDefinitions] = SINK
    task_class = DirectorySinkTask

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse offsets other than those of the files, which count whatever is set."""
        directory = Path(SINK.parse(config)["directory"]).absolute()
        for partition, offset in offsets.items():
            written = next_offset(directory, partition)
            if written is not None and offset != written:
                raise ConnectException(
                    f"The files of {partition} in {directory} end before offset {written}, where "
                    "the connector goes on; move them away to have it go on elsewhere"
                )
        return True
