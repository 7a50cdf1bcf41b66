"""What the sink reads from a query's checkpoint: its id, the source offsets of a batch, commits.

Kafka: none; Spark: OffsetSeqLog, CommitLog, StreamMetadata.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import xxhash

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpoint_files import open_files, qualified
from ottla.spark.hadoop_settings import hadoop_settings
from ottla.spark.offsets import ID, SourceOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.types import TopicPartition

_NO_PARTITIONS: Final = "{}"
"""The offsets of this project's source, or of Kafka's connector, without a topic."""
_NO_OFFSETS: Final = "-"
"""What Spark writes for a source that is not in the batch."""


class Checkpoint:
    """The checkpoint directory of one query."""

    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        """Take the location as Spark has it: a path or a URI. KafkaError where it is not known.

        `settings` are Hadoop's, besides those of HADOOP_CONF_DIR.
        """
        try:
            known = hadoop_settings(settings or {})
            self.location = qualified(location, known)
            self._files, root = open_files(self.location, known)
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
        names = self._files.names(str(self._root / log))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def is_reset(self) -> bool:
        """Whether the newest batch starts at reset offsets, after a finished one.

        Then nothing of the batch before is left to complete, and this one is not decided.
        """
        newest = self._newest("offsets")
        is_next = newest == self.last_committed_batch() + 1
        return is_next and any(
            source_offset.resets for source_offset in self.source_offsets(newest)
        )

    def is_without_partitions(self, batch_id: int) -> bool:
        """Whether no topic matched the query's pattern yet when a batch was planned."""
        sources = set(self._source_lines(batch_id))
        return _NO_PARTITIONS in sources <= {_NO_PARTITIONS, _NO_OFFSETS}

    def source_offsets(self, batch_id: int) -> list[SourceOffsets]:
        """Return the end offsets of a batch, of those sources that are this project's."""
        return [
            SourceOffsets.from_json(document)
            for document in _documents(self._source_lines(batch_id))
            if all(ID in topic for topic in document.values())
        ]

    def source_digest(self, batch_id: int) -> int:
        """Return a number of 64 bits for the offsets at which all sources of a batch end."""
        return xxhash.xxh3_64_intdigest("\n".join(self._source_lines(batch_id)).encode())

    def _source_lines(self, batch_id: int) -> list[str]:
        return self._read(f"offsets/{batch_id}").splitlines()[2:]

    def committed_positions(self) -> dict[TopicPartition, int]:
        """Return the end of the last committed batch by partition; none before the first."""
        last = self.last_committed_batch()
        found: dict[TopicPartition, int] = {}
        for offsets in [] if last < 0 else self.source_offsets(last):
            found.update(offsets.positions)
        return found

    def read_text(self, name: str) -> str | None:
        """Return the text of a file in the checkpoint's directory; None if there is none."""
        found = self._files.read(str(self._root / name))
        return None if found is None else found.decode("utf-8")

    def write_text(self, name: str, text: str) -> None:
        """Write a file into the checkpoint's directory."""
        self._files.write(str(self._root / name), text.encode("utf-8"))

    def _read(self, name: str) -> str:
        text = self.read_text(name)
        if text is None:
            raise FileNotFoundError(f"the checkpoint {self.location} has no file {name}")
        return text


def _documents(lines: list[str]) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the JSON documents that have the form of this source's offsets."""
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and all(isinstance(one, dict) for one in document.values()):
            yield document
