"""A search by timestamp in a log of many old segments: the loop reads nothing from the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla import NewTopic, TopicPartition
from ottla.testing.disk import SimulatedFile
from ottla.testing.simulation import SimulatedCluster

if TYPE_CHECKING:
    import pytest

PAGE_BYTES = 4096
RECORDS = 150
START_MS = 1_700_000_000_000


class PageCache:
    """Which pages of a topic's files were read since `clear`, and which of them by the loop."""

    def __init__(self, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pages: set[tuple[str, int]] = set()
        self.cold: list[tuple[str, int]] = []
        read = SimulatedFile.read

        def noted(file: SimulatedFile, position: int, size: int) -> bytes:
            end = min(position + size, file.size())
            for page in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
                self._read(cluster, file._path, page)
            return read(file, position, size)

        monkeypatch.setattr(SimulatedFile, "read", noted)

    def _read(self, cluster: SimulatedCluster, path: str, page: int) -> None:
        if path.startswith("old-0/") and (path, page) not in self._pages:
            self._pages.add((path, page))
            if not cluster.loop.is_in_worker:
                self.cold.append((path, page))

    def clear(self) -> None:
        """Let no page be in memory."""
        self._pages.clear()
        self.cold.clear()


def test_indexes_of_old_segments_are_read_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart no segment's largest timestamp is known; each time is found as before."""
    cluster = SimulatedCluster(51, nodes=1)
    pages = PageCache(cluster, monkeypatch)
    partition = TopicPartition("old", 0)
    active: list[str] = []

    async def find() -> list[tuple[int, int] | None]:
        answers = []
        async with cluster.consumer() as consumer:
            for number in (RECORDS, 0, 3, 70, 71):
                pages.clear()
                asked = {partition: START_MS + 10 * number - 5}
                answer = (await consumer.offsets_for_times(asked))[partition]
                answers.append(None if answer is None else (answer.offset, answer.timestamp))
                assert not [one for one in pages.cold if not one[0].startswith(active[0])]
        return answers

    async def work() -> None:
        await cluster.start()
        configs = {"internal.segment.bytes": "2048", "index.interval.bytes": "200"}
        async with cluster.admin() as admin:
            await admin.create_topics([NewTopic("old", 1, 1, configs=configs)])
        async with cluster.producer(linger_ms=0) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(
                    "old", bytes(100), partition=0, timestamp_ms=START_MS + 10 * number
                )
        await cluster.stop(1)
        await cluster.start(1)
        node = cluster[1].node
        assert node is not None
        log = node.broker.replicas.get("old", 0).log
        assert len(log.segments) > 10
        assert not log.segments[0].knows_max_timestamp
        active.append(log.segments.active.path(""))
        expected = [(number, START_MS + 10 * number) for number in (0, 3, 70, 71)]
        assert await find() == [None, *expected]
        await asyncio.sleep(0)

    cluster.run(work())
