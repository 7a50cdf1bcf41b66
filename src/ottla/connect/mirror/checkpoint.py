"""The groups' offsets: translated for the target, as checkpoints and, if so set, as commits.

Kafka: org.apache.kafka.connect.mirror.{MirrorCheckpointConnector, MirrorCheckpointTask,
CheckpointStore}.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.clients.offsets import OffsetAndMetadata
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SourceConnector, SourceTask
from ottla.connect.data import BYTES
from ottla.connect.mirror.clusters import RETRY_S, MirrorSchedule, TopicFollower, create_compacted
from ottla.connect.mirror.metrics import MirrorMetrics
from ottla.connect.mirror.offset_syncs import OffsetSyncStore
from ottla.connect.mirror.offsets import check_offsets
from ottla.connect.mirror.records import MirrorCheckpoint, OffsetSync
from ottla.connect.mirror.settings import (
    CHECKPOINT,
    TASK_GROUPS,
    MirrorSettings,
    NameFilter,
)
from ottla.connect.records import SourceRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.consumer.record_decoder import ConsumerRecord
    from ottla.config.definition import ConfigDefinitions
    from ottla.connect.metrics import MBean

log = logging.getLogger("ottla.connect")
_READ_S: Final = 5.0
"""Between reads of offset syncs: long before compaction could take some of them away."""


class MirrorCheckpointTask(SourceTask):
    """Translates the offsets of its groups."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings; `poll` reads the topics."""
        self._settings = settings = MirrorSettings(CHECKPOINT, config)
        values = settings.values
        self._topics = settings.topics
        self._groups = dict.fromkeys(it for it in config[TASK_GROUPS].split(",") if it)
        self._interval_s: int = values["emit.checkpoints.interval.seconds"]
        self._syncs_groups: bool = values["sync.group.offsets.enabled"]
        self._sync_s: int = values["sync.group.offsets.interval.seconds"]
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()  # as `stop` may come from another thread, at any time
        self._is_ready = False
        self._checkpoints: dict[str, dict[TopicPartition, MirrorCheckpoint]] = {}
        self._clients = clients = ExitStack()  # so that `stop` closes those of a start that failed
        self._source = clients.enter_context(settings.admin("source", "checkpoint-source-admin"))
        self._target = clients.enter_context(settings.admin("target", "checkpoint-target-admin"))
        self._earlier_consumer = clients.enter_context(settings.consumer("target", "checkpoints"))
        topic = settings.policy.checkpoints_topic(settings.source)
        self._earlier = TopicFollower(self._earlier_consumer, topic, self._read_checkpoint)
        side = "source" if settings.syncs_at_source else "target"
        consumer = clients.enter_context(settings.consumer(side, "offset-syncs"))
        self._follower = TopicFollower(consumer, settings.offset_syncs_topic, self._read_sync)
        self._store = OffsetSyncStore()
        self._metrics = MirrorMetrics(settings.source, settings.target)
        self._emit_due_s = self._sync_due_s = time.monotonic()

    def _read_checkpoint(self, record: ConsumerRecord) -> None:
        read = MirrorCheckpoint.decode(record.key, record.value)
        if read.group in self._groups:
            self._checkpoints.setdefault(read.group, {})[read.partition] = read

    def _read_sync(self, record: ConsumerRecord) -> None:
        self._store.add(OffsetSync.decode(record.key, record.value))

    def poll(self) -> Sequence[SourceRecord] | None:
        """Wait until checkpoints are due, and return those that are news."""
        with self._lock:
            try:
                return None if self._is_stopped.is_set() else self._next()
            except (KafkaError, TimeoutError) as error:
                # an outage of either cluster ends no task: all that was due is due again
                log.warning("groups are not synced for the moment: %s", error)
                return None

    def commit_record(self, record: SourceRecord, offset: int | None) -> None:
        """Measure the time that a checkpoint took."""
        of = record.source_partition
        if offset is not None and of is not None and record.timestamp_ms is not None:
            partition = TopicPartition(of["topic"], of["partition"])
            self._metrics.checkpoint(of["group"], partition, record.timestamp_ms)

    def metrics(self) -> Sequence[MBean]:
        """Return the beans of the groups."""
        return self._metrics.beans()

    def _next(self) -> Sequence[SourceRecord] | None:
        if not self._is_ready and not self._get_ready():
            return None
        while not self._is_stopped.is_set():
            now_s = time.monotonic()
            if now_s >= self._emit_due_s:
                self._emit_due_s = now_s + max(self._interval_s, 1)
                records = self._emit()
                if records:
                    return records
            elif self._syncs_groups and now_s >= self._sync_due_s:
                self._sync_due_s = now_s + max(self._sync_s, 1)
                self._sync_groups()
            else:
                due_s = min(self._emit_due_s, now_s + _READ_S)
                if self._syncs_groups:
                    due_s = min(due_s, self._sync_due_s)
                if self._is_stopped.wait(due_s - now_s):
                    break
                self._follower.read_to_end(self._is_stopped.is_set)
        return None

    def _get_ready(self) -> bool:
        """Read earlier checkpoints and all offset syncs; without the former only newest syncs."""
        try:
            if not self._earlier.read_to_end(self._is_stopped.is_set):
                return False
        except (KafkaError, TimeoutError) as error:
            log.warning("earlier checkpoints cannot be read, only new syncs translate: %s", error)
            self._checkpoints.clear()
            self._store = OffsetSyncStore(only_last=True)
        try:
            if not self._follower.read_to_end(self._is_stopped.is_set):
                return False
        except (KafkaError, TimeoutError) as error:
            log.warning("offset syncs cannot be read, again in %g s: %s", RETRY_S, error)
            self._is_stopped.wait(RETRY_S)
            return False
        self._store.read_to_end()
        self._is_ready = True
        self._earlier_consumer.close()  # else it goes on to fetch the checkpoints of this task
        return True

    # ------------------------------------------------------------ checkpoints

    def _emit(self) -> list[SourceRecord]:
        settings, records = self._settings, []
        topic = settings.policy.checkpoints_topic(settings.source)
        now_ms = time.time_ns() // 1_000_000
        for group in self._groups:
            if self._is_stopped.is_set():
                break
            try:
                offsets = self._source.list_group_offsets(group, timeout=settings.timeout_s)
            except (KafkaError, TimeoutError) as error:
                log.warning("the offsets of group %s cannot be read: %s", group, error)
                continue
            known = self._checkpoints.setdefault(group, {})
            for partition, offset in offsets.items():
                if offset is None or not self._topics.accepts(partition.topic):
                    continue
                made = self._translated(group, partition, offset)
                if made is None or not _is_news(made, known.get(made.partition)):
                    continue
                known[made.partition] = made
                wrapped = {
                    "group": group,
                    "topic": made.partition.topic,
                    "partition": made.partition.partition,
                }
                records.append(
                    SourceRecord(
                        topic, 0, BYTES, made.key(), BYTES, made.value(), now_ms, (),
                        wrapped, {"offset": 0},
                    )
                )  # fmt: skip
        return records

    def _translated(
        self, group: str, partition: TopicPartition, offset: OffsetAndMetadata
    ) -> MirrorCheckpoint | None:
        downstream = self._store.translate(partition, offset.offset)
        if downstream is None or downstream < 0:
            return None
        settings = self._settings
        policy = settings.policy
        if policy.topic_source(partition.topic) == settings.target:
            topic = policy.original_topic(partition.topic)  # a copy of the target's own topic
        else:
            topic = policy.format_remote_topic(settings.source, partition.topic)
        remote = TopicPartition(topic, partition.partition)
        return MirrorCheckpoint(group, remote, offset.offset, downstream, offset.metadata or "")

    # ------------------------------------------------------------ commits in the target

    def _sync_groups(self) -> None:
        """Commit in the target for groups that have no members there; never backwards."""
        timeout_s = self._settings.timeout_s
        groups = [it for it, known in self._checkpoints.items() if known]
        if not groups:
            return
        described = self._target.describe_groups(groups, timeout=timeout_s)
        for group in groups:
            if self._is_stopped.is_set():
                return
            state = described[group]
            try:
                if isinstance(state, KafkaError):
                    if state.code != ErrorCode.GROUP_ID_NOT_FOUND:
                        raise state
                elif state.state.upper() not in {"EMPTY", "DEAD"}:
                    continue  # its members commit for themselves
                self._commit(group)
            except (KafkaError, TimeoutError) as error:
                log.warning("the offsets of group %s were not synced: %s", group, error)

    def _commit(self, group: str) -> None:
        timeout_s = self._settings.timeout_s
        checkpoints = self._checkpoints[group]
        committed = self._target.list_group_offsets(group, list(checkpoints), timeout=timeout_s)
        ahead = {}
        for partition, it in checkpoints.items():
            known = committed.get(partition)
            if known is None or known.offset < it.downstream:
                ahead[partition] = OffsetAndMetadata(it.downstream, it.metadata)
        if ahead:
            outcomes = self._target.alter_group_offsets(group, ahead, timeout=timeout_s)
            for partition, error in outcomes.items():
                if error is not None:
                    log.warning("group %s, %s was not synced: %s", group, partition, error)

    def stop(self) -> None:
        """Wake `poll` up, and close the clients."""
        self._is_stopped.set()
        with self._lock:
            self._clients.close()


def _is_news(made: MirrorCheckpoint, known: MirrorCheckpoint | None) -> bool:
    """Whether the group went back in the source, or on in the target."""
    return known is None or made.upstream < known.upstream or made.downstream > known.downstream


class MirrorCheckpointConnector(SourceConnector):
    """Follows the groups of the source."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = CHECKPOINT
    task_class = MirrorCheckpointTask

    def start(self, config: Mapping[str, str]) -> None:
        """Create the topic of checkpoints, and begin to follow the groups."""
        self._settings = settings = MirrorSettings(CHECKPOINT, config)
        values = settings.values
        self._known: list[str] = []
        self._has_topic = False
        self._schedule: MirrorSchedule | None = None
        if not values["enabled"] or not values["emit.checkpoints.enabled"]:
            return
        self._filter = NameFilter(values["groups"], values["groups.exclude"])
        self._topics = settings.topics
        self._source = settings.admin("source", "checkpoint-groups-admin")
        self._schedule = MirrorSchedule("mirror-checkpoint")
        first_s = interval_s = float(values["refresh.groups.interval.seconds"])
        try:
            self._known = self._groups()
        except (KafkaError, TimeoutError):
            log.exception("the groups could not be listed")
            first_s = RETRY_S
        if values["refresh.groups.enabled"]:
            self._schedule.every(interval_s, "refreshing groups", self._refresh, first_s)
        self._schedule.start()

    def _create_topic(self) -> None:
        """Create the topic of checkpoints; after an error the next refresh tries again."""
        settings = self._settings
        try:
            with settings.admin("target", "checkpoint-topic-admin") as admin:
                create_compacted(
                    admin,
                    settings.policy.checkpoints_topic(settings.source),
                    settings.values["checkpoints.topic.replication.factor"],
                    settings.timeout_s,
                )
            self._has_topic = True
        except (KafkaError, TimeoutError):
            log.exception("the topic of checkpoints could not be created")

    def _groups(self) -> list[str]:
        if not self._has_topic:
            self._create_topic()
        timeout_s = self._settings.timeout_s
        accepted = [
            it.group_id
            for it in self._source.list_groups(types=("classic", "consumer"), timeout=timeout_s)
            if self._filter.accepts(it.group_id)
        ]
        # the settings of a task would list such a group as several, which the filter may exclude
        names = [it for it in accepted if "," not in it]
        if len(names) < len(accepted):
            count = len(accepted) - len(names)
            log.warning("%s groups are not mirrored, as their ids have commas", count)
        return [
            name
            for name in names
            if any(
                offset is not None and self._topics.accepts(partition.topic)
                for partition, offset in self._source.list_group_offsets(
                    name, timeout=timeout_s
                ).items()
            )
        ]

    def _refresh(self) -> None:
        groups = self._groups()
        if set(groups) != set(self._known):
            self._known = groups
            self.context.request_task_reconfiguration()

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Divide the groups; without any there is no task until the next refresh."""
        return self._settings.task_configs(TASK_GROUPS, self._known, tasks_max)

    def stop(self) -> None:
        """End the schedule, and close the client."""
        if self._schedule is not None:
            self._schedule.stop(self._settings.timeout_s)
            self._source.close()

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check that offsets are 0, of groups and partitions."""
        del config
        check_offsets(offsets, ("group", "topic", "partition"), only_zero=True)
        return True
