"""The table of files on disk: nothing else is written, and the document shows it.

`OTTLA_REWRITE=1 scripts/test tests/storage/test_layout.py` writes the document's table again.
"""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from ottla.clients.admin.topics import NewTopic
from ottla.storage.directories.partition_dir_names import (
    future_partition_of,
    is_deleted_log,
    partition_of,
)
from ottla.storage.layout import (
    FILES,
    INDEX_CACHE,
    METADATA_LOG,
    STRAY_SUFFIX,
    TRUNCATION_CHECKPOINT,
    Folder,
    base_offset_of,
    file_names,
    segment_file_name,
)
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.types import TopicPartition
from tests.source_trees import PACKAGE, ROOT

DOCUMENT = ROOT / "docs" / "operations.md"
SETTINGS = {
    "log.dirs": "/data,/more",
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.retention.bytes": "4000",
}


def is_known(path: str) -> bool:
    """Whether the table has a file, relative to its log directory."""
    directory, _, name = path.rpartition("/")
    if not directory:
        folders = [Folder.LOG_DIRECTORY]
    elif directory == INDEX_CACHE:
        folders = [Folder.INDEX_CACHE]
    elif directory == METADATA_LOG:
        folders = [Folder.METADATA_LOG, Folder.PARTITION]
    else:
        is_partition = (partition_of(directory) or future_partition_of(directory)) is not None
        is_own = is_partition or is_deleted_log(directory) or directory.endswith(STRAY_SUFFIX)
        folders = [Folder.PARTITION] if is_own else []
    return any(file_names(folder).fullmatch(name) for folder in folders)


class _Watch:
    """All files that nodes have had, looked at often while they work."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.seen: set[str] = set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(0.003)

    def look(self) -> None:
        """Look once."""
        for node in self._cluster:
            for disk in node.disks.values():
                self.seen.update(disk.files())


async def _write(cluster: SimulatedCluster) -> None:
    """Write transactions, idempotent records, keys to compact, and offsets of a group."""
    async with cluster.producer(transactional_id="writer") as producer:
        await producer.init_transactions()
        for number in range(6):
            await producer.begin_transaction()
            for partition in (0, 1):
                await producer.send("plain", b"x" * 400_000, partition=partition)
            await producer.flush()
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    async with cluster.producer() as producer:
        for number in range(12):
            await producer.send("compacted", b"x" * 200_000, key=b"%d" % (number % 3))
    async with cluster.consumer("plain", group_id="g", auto_offset_reset="earliest") as consumer:
        await consumer.poll(timeout=5)
        await consumer.commit()


async def _live(cluster: SimulatedCluster) -> None:
    """Let nodes do all that makes, replaces and removes files."""
    await cluster.start()
    async with cluster.admin() as admin:
        await admin.create_topics(
            [
                NewTopic("plain", partitions=2, replication_factor=2),
                NewTopic(
                    "compacted",
                    partitions=1,
                    replication_factor=2,
                    configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
                ),
                *(NewTopic(f"many-{number}", partitions=4) for number in range(10)),
            ]
        )
        await _write(cluster)
        moved = TopicPartition("plain", 0)
        described = await admin.describe_replica_log_dirs([(moved, 1)])
        now_in = described[moved, 1].current_path
        target = "/more" if now_in == "/data" else "/data"
        await admin.alter_replica_log_dirs({(moved, 1): target})
        await asyncio.sleep(20)
        cluster.kill(2, power=True)
        await asyncio.sleep(1)
        await cluster.start(2)
        await _write(cluster)
        await admin.delete_topics(["many-1", "plain"])
        await asyncio.sleep(20)
    await cluster.stop()


@pytest.mark.soak
def test_nodes_have_no_file_that_the_table_does_not_know() -> None:
    """Transactions, compaction, snapshots, a move, a power cut, deletion, clean stops."""
    cluster = SimulatedCluster(7, nodes=2, config=SETTINGS)
    watch = _Watch(cluster)

    async def work() -> None:
        task = asyncio.ensure_future(watch.run())
        await _live(cluster)
        task.cancel()
        watch.look()

    cluster.run(work())
    assert [path for path in sorted(watch.seen) if not is_known(path)] == []
    names = {path.rpartition("/")[2] for path in watch.seen}
    missing = {kind.name for kind in FILES if not any(map(re.compile(kind.pattern).match, names))}
    # two voters have no reason to truncate the metadata log; no topic is tiered
    tiered = {kind.name for kind in FILES if kind.folder is Folder.INDEX_CACHE}
    assert missing == {TRUNCATION_CHECKPOINT} | tiered


def test_offsets_in_names_are_twenty_digits() -> None:
    """Digits of other scripts are a foreign file's, which no node opens."""
    assert base_offset_of(segment_file_name(7, ".log"), ".log") == 7
    foreign = ["7.log", "\N{ARABIC-INDIC DIGIT ONE}" * 20 + ".log", segment_file_name(7, ".index")]
    assert [base_offset_of(name, ".log") for name in foreign] == [None, None, None]


def test_owners_are_modules() -> None:
    """Each row names the module that reads and writes the file."""
    for kind in FILES:
        assert (PACKAGE / kind.owner).is_file(), kind.owner


def drawn_files() -> str:
    """Draw the table of files."""
    lines = ["| in | file | of | content | if lost | module |", "|---|---|---|---|---|---|"]
    for kind in FILES:
        origin = "Kafka" if kind.is_kafkas else "Ottla"
        lines.append(
            f"| {kind.folder.value} | `{kind.name}` | {origin} | {kind.content} | {kind.if_lost} "
            f"| `{kind.owner}` |"
        )
    return "\n".join([*lines, ""])


def test_the_document_shows_the_table() -> None:
    """The table of the operator's page is printed from that of the code."""
    text = DOCUMENT.read_text(encoding="utf-8")
    begin, end = "<!-- table of files -->\n", "<!-- end of table -->"
    before, found, rest = text.partition(begin)
    assert found
    shown, _, after = rest.partition(end)
    if os.environ.get("OTTLA_REWRITE"):
        shown = drawn_files()
        DOCUMENT.write_text(before + begin + shown + end + after, encoding="utf-8")
    assert shown == drawn_files()
