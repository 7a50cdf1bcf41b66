"""The lines of a file, or of standard input, as records.

A line is a record once its end (LF, CR or both) is in the file. The file may appear later and may
grow. Positions are bytes; Kafka counts characters, which breaks lines after a restart where the
text is not ASCII.

Kafka: org.apache.kafka.connect.file.{FileStreamSourceConnector, FileStreamSourceTask}.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from ottla.config.checks import NON_EMPTY
from ottla.config.definition import HIGH, LOW, ConfigDefinitions, Type
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import ExactlyOnceSupport, SourceConnector, SourceTask
from ottla.connect.data import STRING
from ottla.connect.errors import ConnectException
from ottla.connect.records import SourceRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("ottla.connect")
POSITION: Final = "position"
FILENAME: Final = "filename"
DEFINITIONS: Final = (
    ConfigDefinitions()
    .define(
        "file",
        Type.STRING,
        None,
        "Source filename. If not specified, the standard input will be used",
        importance=HIGH,
    )
    .define(
        "topic",
        Type.STRING,
        doc="The topic to publish data to",
        check=NON_EMPTY,
        importance=HIGH,
    )
    .define(
        "batch.size",
        Type.INT,
        2000,
        "The maximum number of records the source task can read from the file each time it is "
        "polled",
        importance=LOW,
    )
)
_WAIT_S: Final = 1.0
"""Time that `poll` waits for a file, or for more lines; Kafka's."""
_CHUNK: Final = 64 << 10
_LINE_BYTES_MAX: Final = 256 << 20
"""A longer line fails the task, before it takes all memory."""


class FileStreamSourceTask(SourceTask):
    """Reads one file."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings; the file is opened by `poll`."""
        values = DEFINITIONS.parse(config)
        self._name: str | None = values["file"]
        self._topic: str = values["topic"]
        self._batch_size: int = values["batch.size"]
        self._stream: BinaryIO | None = None
        self._text = bytearray()
        """What was read after the last record."""
        self._searched = 0
        """Bytes of it without the end of a line: a long line is searched once."""
        self._position = 0
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()
        if self._name is None:
            self._stream = sys.stdin.buffer
            os.set_blocking(self._stream.fileno(), False)

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next complete lines; wait for a second without any."""
        with self._lock:
            return None if self._is_stopped.is_set() else self._next()

    def _next(self) -> Sequence[SourceRecord] | None:
        if self._stream is None and not self._open():
            self._is_stopped.wait(_WAIT_S)
            return None
        assert self._stream is not None
        lines = self._lines()
        if not lines:
            chunk = self._stream.read(_CHUNK)
            if chunk:
                self._text += chunk
                if len(self._text) > _LINE_BYTES_MAX:
                    raise ConnectException(f"A line of {self._name} has no end")
                lines = self._lines()
        if not lines:
            self._is_stopped.wait(_WAIT_S)
            return None
        partition = None if self._name is None else {FILENAME: self._name}
        now_ms = time.time_ns() // 1_000_000
        return [
            SourceRecord(
                self._topic,
                value_schema=STRING,
                value=line,
                timestamp_ms=now_ms,
                source_partition=partition,
                source_offset={POSITION: position},
            )
            for line, position in lines
        ]

    def stop(self) -> None:
        """Wake `poll` up and close the file."""
        self._is_stopped.set()
        with self._lock:  # `poll` may be opening it
            if self._stream is not None and self._name is not None:
                self._stream.close()

    def _open(self) -> bool:
        """Open the file where its last record ended; False without a file."""
        assert self._name is not None
        stored = self.context.offset({FILENAME: self._name})
        position = 0 if stored is None else stored.get(POSITION)
        if position is None:
            position = 0
        elif not isinstance(position, int) or isinstance(position, bool):
            raise ConnectException("Offset position is the incorrect type")
        try:
            self._stream = Path(self._name).open("rb")  # noqa: SIM115 - `stop` closes it
        except FileNotFoundError:
            log.warning("Couldn't find file %s, sleeping to wait for it to be created", self._name)
            return False
        self._stream.seek(position)
        self._position = position
        return True

    def _lines(self) -> list[tuple[str, int]]:
        """Take complete lines from what was read, each with the position after it."""
        lines: list[tuple[str, int]] = []
        text, start, searched = self._text, 0, self._searched
        while len(lines) < self._batch_size:
            newline, carriage = text.find(b"\n", searched), text.find(b"\r", searched)
            end = newline if carriage < 0 or 0 <= newline < carriage else carriage
            if end < 0 or (end == carriage and end + 1 == len(text)):
                searched = len(text) if end < 0 else end  # a `\n` may follow the `\r`
                break
            after = end + 2 if text[end : end + 2] == b"\r\n" else end + 1
            lines.append((text[start:end].decode(errors="replace"), self._position + after))
            start = searched = after
        del text[:start]
        self._searched = searched - start
        self._position += start
        return lines


class FileStreamSourceConnector(SourceConnector):
    """Reads one file by one task."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = DEFINITIONS
    task_class = FileStreamSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        self._config = config

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the connector's settings for its only task."""
        del tasks_max
        return [self._config]

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Support it for files; standard input has no offsets."""
        if DEFINITIONS.parse(config)["file"] is None:
            return ExactlyOnceSupport.UNSUPPORTED
        return ExactlyOnceSupport.SUPPORTED

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check that positions are numbers of bytes, of files."""
        if not config.get("file"):
            raise ConnectException(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is "
                "because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets.items():
            if offset is None:
                continue
            if POSITION not in offset:
                raise ConnectException(
                    "Offset objects should either be null or contain the key 'position'"
                )
            position = offset[POSITION]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConnectException(
                    "The value for the 'position' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise ConnectException(
                    "The value for the 'position' key in the offset should be a non-negative value"
                )
            if FILENAME not in dict(partition):
                raise ConnectException("Partition objects should contain the key 'filename'")
        return True
