"""What the sink reads from a query's checkpoint: its id, the source offsets of a batch, commits.

Kafka: none; Spark: OffsetSeqLog, CommitLog, StreamMetadata. Any file system that pyarrow reaches.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.offsets import ID, SourceOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.types import TopicPartition


class Checkpoint:
    """The checkpoint directory of one query."""

    def __init__(self, location: str) -> None:
        """Take the location as Spark has it: a path or a URI. KafkaError where it is not known."""
        try:
            self._files, root = _opened(location)
        except (ValueError, OSError) as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"exactlyOnce needs to read the checkpoint {location}: {error}; "
                "exactlyOnce=false does without",
            ) from error
        self._root = PurePosixPath(root)

    def query_id(self) -> str:
        """Return the query's id, which stays the same over restarts."""
        return str(json.loads(self._read("metadata"))["id"])

    def last_committed_batch(self) -> int:
        """Return the last batch in Spark's commit log; -1 before the first."""
        return self._newest("commits")

    def is_new(self) -> bool:
        """Whether the query has planned no micro-batch yet."""
        return self._newest("offsets") < 0

    def _newest(self, log: str) -> int:
        selector = pafs.FileSelector(str(self._root / log), allow_not_found=True)
        names = [entry.base_name for entry in self._files.get_file_info(selector)]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def is_reset(self) -> bool:
        """Whether the newest batch starts at reset offsets, after a finished one.

        Then nothing of the batch before is left to complete, and this one is not decided.
        """
        newest = self._newest("offsets")
        is_next = newest == self.last_committed_batch() + 1
        return is_next and any(one.resets for one in self.source_offsets(newest))

    def source_offsets(self, batch_id: int) -> list[SourceOffsets]:
        """Return the end offsets of a batch, of those sources that are this project's."""
        lines = self._read(f"offsets/{batch_id}").splitlines()
        return [
            SourceOffsets.from_json(document)
            for document in _documents(lines[2:])
            if all(ID in topic for topic in document.values())
        ]

    def committed_positions(self) -> dict[TopicPartition, int]:
        """Return the end of the last committed batch by partition; none before the first."""
        last = self.last_committed_batch()
        found: dict[TopicPartition, int] = {}
        for offsets in [] if last < 0 else self.source_offsets(last):
            found.update(offsets.positions)
        return found

    def read_text(self, name: str) -> str | None:
        """Return the text of a file in the checkpoint's directory; None if there is none."""
        (found,) = self._files.get_file_info([str(self._root / name)])
        return self._read(name) if found.type == pafs.FileType.File else None

    def write_text(self, name: str, text: str) -> None:
        """Write a file into the checkpoint's directory."""
        self._files.create_dir(str(self._root), recursive=True)
        with self._files.open_output_stream(str(self._root / name)) as stream:
            stream.write(text.encode("utf-8"))

    def _read(self, name: str) -> str:
        with self._files.open_input_stream(str(self._root / name)) as stream:
            text: str = stream.readall().decode("utf-8")
            return text


def _opened(location: str) -> tuple[pafs.FileSystem, str]:
    if location.startswith("file:/"):
        return pafs.LocalFileSystem(), "/" + location.removeprefix("file:").lstrip("/")
    if "://" in location:
        # Hadoop's name of the same store
        files, root = pafs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", location))
        return files, str(root)
    return pafs.LocalFileSystem(), location


def _documents(lines: list[str]) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the JSON documents that have the form of this source's offsets."""
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and all(isinstance(one, dict) for one in document.values()):
            yield document
