"""The values of topics as lines of a file, or on standard output.

Kafka: org.apache.kafka.connect.file.{FileStreamSinkConnector, FileStreamSinkTask}.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, TextIO

from ottla.config.definition import HIGH, ConfigDefinitions, Type
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SinkTask, UniformSinkConnector
from ottla.connect.errors import ConnectException
from ottla.connect.values import display_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.records import SinkRecord
    from ottla.types import TopicPartition

DEFINITIONS: Final = ConfigDefinitions().define(
    "file",
    Type.STRING,
    None,
    "Destination filename. If not specified, the standard output will be used",
    importance=HIGH,
)


class FileStreamSinkTask(SinkTask):
    """Writes one file."""

    def start(self, config: Mapping[str, str]) -> None:
        """Open the file for appending."""
        name = DEFINITIONS.parse(config)["file"]
        self._stream: TextIO = sys.stdout
        if name is not None:
            try:
                self._stream = Path(name).open("a", encoding="utf-8", newline="\n")  # noqa: SIM115
            except OSError as error:
                text = f"Couldn't find or create file '{name}' for FileStreamSinkTask"
                raise ConnectException(text) from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write a line for each record."""
        self._stream.writelines(f"{display_text(it.value, it.value_schema)}\n" for it in records)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Hand the lines to the system."""
        del offsets
        self._stream.flush()

    def stop(self) -> None:
        """Close the file."""
        if self._stream is not sys.stdout:
            self._stream.close()


class FileStreamSinkConnector(UniformSinkConnector):
    """Writes one file by each task."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = DEFINITIONS
    task_class = FileStreamSinkTask
