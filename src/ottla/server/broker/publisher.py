"""Applies changes of the committed metadata to a broker.

Kafka: kafka.server.metadata.BrokerMetadataPublisher.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.resources import ConfigResourceType
from ottla.purgatory.work import finish
from ottla.server.broker.topic_auto_creation import INTERNAL_TOPICS
from ottla.storage.log_set.checkpoint_queue import write_all
from ottla.storage.log_set.jobs import run_all
from ottla.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.partition import PartitionRegistration, TopicImage
    from ottla.purgatory.work import Work
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet
    from ottla.server.broker.broker import Broker
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.directories.log_dir import LogDirectory

    Key = tuple[Uuid, int]

log = logging.getLogger("ottla.broker")
AT_ONCE_S: Final = 0.008
"""Time for few changed partitions in the turn of their change: most of what the rule allows one."""
PARTITIONS_AT_ONCE: Final = 20
"""Partitions whose settings change between two yields, at 5 to 10 µs each, or after whose change
their fetchers are woken."""
_NOT_REMOVED = "a partition is not removed: %s; check the disk, a restart removes it"


class MetadataPublisher:
    """Hosts, leads, reconfigures and removes partitions as the metadata requires."""

    def __init__(
        self,
        broker: Broker,
        run_on_volume: RunOnVolume,
    ) -> None:
        self._broker = broker
        self._worker = broker.worker
        self._new_logs = NewLogs(broker.replicas, run_on_volume, self._logs_created)
        self._changed: dict[tuple[Uuid, int], bool] = {}
        """Partitions still to be changed, in order, each with whether it is new on this broker."""
        self._image: MetadataImage
        """The newest image; set before the first change."""
        self._metadata = broker.metadata
        self._clock = broker.clock
        self._replicas = broker.replicas
        self._replication = broker.replication
        self._moves = broker.moves
        self._coordinators = broker.coordinators
        self._node_id = broker.node_id
        self._reported: set[str] = set()
        self._dropped: dict[TopicPartition, Partition | None] = {}
        """Partitions of deleted topics whose logs are not deleted yet; None was not served."""
        self._to_reconfigure: dict[str, None] = {}
        """Topics with new settings."""

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply committed metadata; a part that fails is logged and stops no other part."""
        now_ms = self._clock.now_ms()
        for topic in delta.topics_deleted.values():
            self._apply(f"deletion of {topic.name}", self._drop_topic, topic)
        self._worker.run(self._drop_all(), "deletion of logs")
        self._queue_changes(delta, image)
        self._apply("creation of logs", self._new_logs.begin, image, now_ms)
        self._image = image
        self._begin_changes()
        self._apply("change of groups' topics", self._notify_groups, delta, image)
        for resource in delta.configs_changed:
            if resource.type == ConfigResourceType.TOPIC:
                self._to_reconfigure[resource.name] = None
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs_changed):
            self._apply("change of brokers' settings", self._metadata.apply_broker_settings)
            self._to_reconfigure.update(dict.fromkeys(image.topics.by_name))
        self._worker.run(self._reconfigure_all(), "change of settings")

    def _notify_groups(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Report topics whose partitions or racks changed: groups that read them are reassigned.

        Changes of leaders and ISRs, which are many, do not count.
        """
        ids: dict[Uuid, None] = {}
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id.get(topic_id)
            current = {} if topic is None else topic.partitions
            if any(_has_new_replicas(before, current.get(i)) for i, before in partitions.items()):
                ids[topic_id] = None
        for broker_id, known in delta.brokers_changed.items():
            now = image.cluster.brokers.get(broker_id)
            if (known and known.rack) != (now and now.rack):
                ids.update(dict.fromkeys(image.topics.by_id))
                break
        topics = (image.topics.by_id.get(topic_id) for topic_id in ids)
        names = [topic.name for topic in topics if topic is not None]
        names += [topic.name for topic in delta.topics_deleted.values()]
        if names:
            self._coordinators.topics_changed(names)

    def _queue_changes(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Queue the changed partitions; those without a log wait for it."""
        changed, new_logs = self._changed, self._new_logs
        for topic_id, partitions in delta.partitions_changed.items():
            topic = image.topics.by_id.get(topic_id)
            for index, before in partitions.items():
                key = topic_id, index
                if key in new_logs:
                    continue  # it is changed once it has a log, from the image at that time
                is_new = not delta.is_snapshot and (
                    before is None or self._node_id not in before.replicas
                )
                if is_new and topic is not None and new_logs.add(topic, index):
                    changed.pop(key, None)
                else:
                    changed[key] = changed.get(key, False) or is_new

    def _logs_created(self, keys: Iterable[tuple[Uuid, int]], image: MetadataImage) -> None:
        """Change partitions whose logs have been created."""
        self._changed.update(dict.fromkeys(keys, True))
        self._image = image
        self._begin_changes()

    def host_again(self, log_dir: LogDirectory) -> None:
        """Serve the partitions of a directory that was offline, and those that waited for it."""
        replicas = self._replicas
        names = {log.topic_partition for log in replicas.logs.table.logs_in(log_dir)}
        names.update(one.topic_partition for one in replicas if replicas.is_restorable(one))
        names |= replicas.logs.withheld
        for name in sorted(names):
            topic = self._image.topics.by_name.get(name.topic)
            if topic is not None and name.partition in topic.partitions:
                self._changed.setdefault((topic.topic_id, name.partition), False)
        self._begin_changes()

    def _begin_changes(self) -> None:
        """Change few partitions in this turn: clients write as soon as a topic exists."""
        at_once_s = AT_ONCE_S if len(self._changed) <= LOGS_OF_THE_LOOP else 0.0
        self._worker.run(self._change_all(), "change of partitions", at_once_s=at_once_s)

    def _change_all(self) -> Work[None]:
        """Apply the newest image to the queued partitions.

        A change of thousands (a broker failed, a topic of a thousand partitions) must not delay
        votes, heartbeats and clients.
        """
        changed, count = self._changed, 0
        while changed:
            key = next(iter(changed))
            is_new = changed.pop(key)
            topic_id, index = key
            topic = self._image.topics.by_id.get(topic_id)
            if topic is not None and index in topic.partitions:  # else deleted meanwhile
                host = partial(self._host_partition, is_new=is_new)
                now_ms = self._clock.now_ms()
                self._apply(f"change of {topic.name}-{index}", host, topic, index, now_ms)
            count += 1
            if count % PARTITIONS_AT_ONCE == 0:
                self._replication.wake()
            yield
        self._replication.wake()

    def close(self) -> None:
        """Apply no further change; logs of deleted topics must not be there at the next start."""
        finish(self._drop_all())
        self._changed.clear()
        self._to_reconfigure.clear()
        self._new_logs.close()

    def _apply(self, what: str, change: Callable[..., None], *arguments: object) -> None:
        try:
            change(*arguments)
        except Exception:  # the other changes of the delta must still be applied
            text = "%s failed; report this as a bug, and restart the node to apply it again"
            log.exception(text, what, extra={"event": "metadata.not_applied"})

    def _drop_topic(self, topic: TopicImage) -> None:
        """Stop serving a topic's partitions; `_drop_all` deletes their logs."""
        self._broker.quotas.replication.set_replicas(topic.name, {})
        for index in sorted(topic.partitions):
            partition = self._replicas.remove(topic.name, index)
            if partition is not None:
                self._broker.share.leader_changed(partition)
            self._dropped[TopicPartition(topic.name, index)] = partition
        self._coordinators.topic_deleted(topic.name, topic.topic_id)

    def _drop_all(self) -> Work[None]:
        """Delete logs of deleted topics: each deletion renames a directory."""
        while self._dropped:
            name = next(iter(self._dropped))
            self._apply(f"deletion of {name}", self._drop, *name, self._clock.now_ms())
            yield

    def _drop(self, name: str, index: int, now_ms: int) -> None:
        dropped = self._dropped.pop(TopicPartition(name, index), None)
        partition = dropped or self._replicas.find(name, index)
        if partition is not None:
            self._replication.leave(partition)
        self._moves.forget(TopicPartition(name, index))
        try:
            self._replicas.drop(name, index, now_ms=now_ms)
        except KafkaError as error:
            # its directory is offline now; the other changes must still be applied
            log.error(_NOT_REMOVED, error, extra={"event": "partition.broken"})  # noqa: TRY400 - the message names the log
        self._coordinators.resigned(name, index)

    def _host_partition(self, topic: TopicImage, index: int, now_ms: int, *, is_new: bool) -> None:
        image = topic.partitions[index]
        name = topic.name
        if TopicPartition(name, index) in self._dropped:  # of a deleted topic with this name
            self._drop(name, index, now_ms)
        if self._node_id not in image.replicas:
            self._drop_moved(topic, index, now_ms)
            return
        self._leave_lost(name, index)
        try:
            partition = self._replicas.host(
                name, index, topic.topic_id, now_ms=now_ms, is_new=is_new
            )
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            if str(error) not in self._reported:  # each change of the partition opens it again
                self._reported.add(str(error))
                text = "a partition is not served: %s"
                if "ottla log-repair" not in str(error):
                    text = "a partition is not served: %s; check the disk, and the line about it"
                log.error(text, error, extra={"event": "partition.broken"})  # noqa: TRY400 - the message names the log
            return
        if partition.log.failure is not None:
            self._stop_serving(partition, image)
            return
        self._moves.resume(partition, image)
        self._report_directory(partition, image)
        partition.reconfigure(self._metadata.log_config(name).min_insync_replicas)
        partition.adding = image.adding_replicas
        partition.is_reassigning = image.is_reassigning
        if not partition.assign(image.replicas, image.isr, image.partition_epoch):
            return
        if image.leader == self._node_id:
            self._lead(partition, image.leader_epoch)
        else:
            self._follow(partition, image.leader, image.leader_epoch)

    def _leave_lost(self, name: str, index: int) -> None:
        """End the roles of a partition whose directory was offline and has returned."""
        lost = self._replicas.find(name, index)
        if lost is None or not self._replicas.is_restorable(lost):
            return
        self._replication.leave(lost)
        if lost.is_leader:
            self._coordinators.resigned(name, index, lost.leader_epoch)
        self._replicas.resign(lost, -1, lost.leader_epoch)

    def _report_directory(self, partition: Partition, image: PartitionRegistration) -> None:
        """Report the log's directory when the metadata names another one."""
        log_dir = self._replicas.logs.log_dir_of(partition.topic_partition)
        directory_id = None if log_dir is None else log_dir.directory_id
        if (
            directory_id is not None
            and image.directory_of(self._node_id) != directory_id
            and not self._moves.is_exchange_due(partition.topic_partition, image)
        ):
            index = partition.topic_partition.partition
            self._replication.directories.placed(partition.topic_id, index, directory_id)

    def _stop_serving(self, partition: Partition, image: PartitionRegistration) -> None:
        """Resign from a partition whose directory is offline."""
        self._replication.leave(partition)
        if image.leader == self._node_id or image.leader_epoch <= partition.leader_epoch:
            return
        if partition.is_leader:
            self._coordinators.resigned(*partition.topic_partition, image.leader_epoch)
        self._replicas.resign(partition, image.leader, image.leader_epoch)

    def _drop_moved(self, topic: TopicImage, index: int, now_ms: int) -> None:
        """Remove a partition that is no longer assigned to this broker."""
        logs, partition = self._replicas.logs, TopicPartition(topic.name, index)
        held = logs.get(partition) or logs.futures.get(partition)
        if held is not None and held.topic_id == topic.topic_id:
            self._drop(topic.name, index, now_ms)

    def _follow(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        if leader_epoch == partition.leader_epoch and not partition.is_leader:
            return  # only the in-sync set has changed
        if partition.is_leader:
            self._coordinators.resigned(*partition.topic_partition, leader_epoch)
        self._replicas.resign(partition, leader, leader_epoch)
        self._broker.share.leader_changed(partition)
        self._replication.follow(partition, leader, leader_epoch)

    def _lead(self, partition: Partition, leader_epoch: int) -> None:
        self._replication.leave(partition)
        is_new = not partition.is_leader or leader_epoch != partition.leader_epoch
        on_commit = self._coordinators.commit_listener(partition.topic_partition.topic)
        now_ms = self._clock.monotonic_ms()
        partition.become_leader(self._node_id, leader_epoch, on_commit, now_ms=now_ms)
        if is_new:
            self._coordinators.elected(partition)
            self._broker.share.leader_changed(partition)

    def _reconfigure_all(self) -> Work[None]:
        """Apply the settings of topics to their partitions, again where they change meanwhile."""
        while self._to_reconfigure:
            name = next(iter(self._to_reconfigure))
            del self._to_reconfigure[name]
            topic = self._metadata.image.topics.by_name.get(name)
            indexes = iter([] if topic is None else list(topic.partitions))
            while some := list(islice(indexes, PARTITIONS_AT_ONCE)):
                self._apply(f"change of settings of {name}", self._reconfigure, name, some)
                yield
            yield

    def _reconfigure(self, name: str, indexes: list[int]) -> None:
        settings = self._metadata.image.configs.topic(name)
        self._broker.quotas.replication.set_replicas(name, settings)
        self._replicas.logs.reconfigure(name, indexes)
        min_insync_replicas = self._metadata.log_config(name).min_insync_replicas
        for index in indexes:
            partition = self._replicas.find(name, index)
            if partition is not None:
                partition.reconfigure(min_insync_replicas)


def _has_new_replicas(
    before: PartitionRegistration | None, after: PartitionRegistration | None
) -> bool:
    """Whether a partition is new, deleted, or has other replicas."""
    return before is None or after is None or before.replicas != after.replicas


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
