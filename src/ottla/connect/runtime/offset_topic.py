"""The offsets topic of source connectors, and the store over it that workers of a group share.

Kafka: org.apache.kafka.connect.storage.KafkaOffsetBackingStore.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.connect.runtime.offsets import OffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.loops import LoopThread
    from ottla.clients.table import AsyncTable


class OffsetTopic:
    """Offsets in a table over their topic; its calls wait, and come from any other thread."""

    def __init__(self, thread: LoopThread, table: AsyncTable) -> None:
        """Take the table, and the thread of its loop."""
        self._thread, self._table = thread, table

    @property
    def entries(self) -> dict[bytes | None, bytes | None]:
        """The newest offsets that are known."""
        return dict(self._table.items())

    def put(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Append entries, and wait until they are read back."""

        async def write() -> None:
            await asyncio.gather(*(self._table.write(key, it) for key, it in entries.items()))

        self._thread.call(write())

    def read_to_end(self) -> None:
        """Wait for what other workers have written."""
        self._thread.call(self._table.read_to_end())


class TopicOffsets(OffsetStore):
    """Offsets in the topic, where other workers write too: each question reads to the end."""

    def __init__(self, storage: OffsetTopic) -> None:
        self._topic = storage
        super().__init__(storage)

    def get_all(
        self, connector: str, partitions: Iterable[Mapping[str, Any]]
    ) -> list[dict[str, Any] | None]:
        """Return the newest offsets of partitions, also nulls that mean none."""
        self._refresh()
        return super().get_all(connector, partitions)

    def all_of(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return partitions and offsets of a connector."""
        self._refresh()
        return super().all_of(connector)

    def _refresh(self) -> None:
        self._topic.read_to_end()
        self.find_keys()
