"""Creates the logs of new partitions: few on the event loop, many in workers.

A topic of a thousand partitions is some seven thousand new files. On a busy disk each may wait for
the file system's journal; votes, heartbeats and clients must not wait for them.

Kafka: none; a broker's other threads continue while one creates logs.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.server.broker.internal_topics import INTERNAL_TOPICS
from ottla.storage.log_set.checkpoint_queue import write_all
from ottla.storage.log_set.jobs import run_all
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.topic import TopicImage
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.system.environment import RunOnVolume
    from ottla.types import Uuid

    Key = tuple[Uuid, int]

LOGS_OF_THE_LOOP: Final = 20
"""New logs up to this number are created at once: clients write as soon as a topic exists."""
LOGS_AT_ONCE: Final = 200
"""New logs in one batch of jobs: changes of other partitions are applied in between."""


class NewLogs:
    """Partitions that wait for their logs; no two logs of one name are created at the same time."""

    def __init__(
        self,
        replicas: ReplicaSet,
        run_on_volume: RunOnVolume,
        on_created: Callable[[Iterable[Key], MetadataImage], None],
    ) -> None:
        """on_created(keys, image) is called for partitions to be hosted now, with or without a log.

        Hosting creates a missing log.
        """
        self._replicas = replicas
        self._logs = replicas.logs
        self._run_on_volume = run_on_volume
        self._on_created = on_created
        self._waiting: dict[Key, TopicPartition] = {}
        self._creating: dict[Key, TopicPartition] = {}
        self._is_closed = False

    def __contains__(self, key: Key) -> bool:
        """Whether the partition waits for its log."""
        return key in self._waiting or key in self._creating

    def add(self, topic: TopicImage, index: int) -> bool:
        """Queue a new partition; False when it has a log already, or gets none on this broker.

        Also for internal topics: clients wait for their coordinators.
        """
        partition = TopicPartition(topic.name, index)
        is_missing = (
            topic.name not in INTERNAL_TOPICS
            and self._replicas.node_id in topic.partitions[index].replicas
            and self._replicas.find(topic.name, index) is None
            and self._logs.is_missing(partition)
        )
        if is_missing:
            self._waiting[topic.topic_id, index] = partition
        return is_missing

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """Create the queued logs, one batch after another."""
        if self._creating or not self._waiting:
            return
        keys = list(islice(self._waiting, LOGS_AT_ONCE))
        batch = {key: self._waiting.pop(key) for key in keys}
        checkpoints = self._logs.checkpoints.without_gone(set(batch.values()))
        if not checkpoints:
            self._make(batch, image, now_ms)
            return
        self._creating = batch

        def written(_done: object) -> None:
            if not self._is_closed:
                self._creating = {}
                self._make(batch, image, now_ms)
                self.begin(image, now_ms)

        write_all(checkpoints, self._run_on_volume).on_done(written)

    def _make(self, batch: dict[Key, TopicPartition], image: MetadataImage, now_ms: int) -> None:
        if len(batch) <= LOGS_OF_THE_LOOP or not self._logs.online_directories:
            self._on_created(batch, image)
            return
        current = [(name, key[0]) for key, name in batch.items() if _is_current(key, image)]
        jobs = self._logs.creation_jobs(current, now_ms=now_ms)
        self._creating = batch

        def finished(_done: object) -> None:
            self._finished(image, now_ms)

        run_all(jobs, self._run_on_volume).on_done(finished)

    def _finished(self, image: MetadataImage, now_ms: int) -> None:
        created, self._creating = self._creating, {}
        if self._is_closed:
            return
        for key, name in created.items():
            if not _is_current(key, image):  # deleted meanwhile
                self._logs.delete(name, now_ms=now_ms)
        self._on_created(created, image)
        self.begin(image, now_ms)

    def close(self) -> None:
        """Create no further logs."""
        self._waiting.clear()
        self._is_closed = True


def _is_current(key: Key, image: MetadataImage) -> bool:
    topic_id, index = key
    topic = image.topics.by_id.get(topic_id)
    return topic is not None and index in topic.partitions
