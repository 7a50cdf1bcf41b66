"""The mirror's copies: records, topics with their configs and access control, and offset syncs.

Keys, values and headers pass as bytes.

Kafka: org.apache.kafka.connect.mirror.{MirrorSourceConnector, MirrorSourceTask}.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.clients.admin.configs import (
    AlterOperation,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from ottla.clients.admin.security import ANY_ACL
from ottla.clients.admin.topics import NewTopic
from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import ExactlyOnceSupport, SourceConnector, SourceTask
from ottla.connect.data import BYTES, Header
from ottla.connect.mirror.clusters import RETRY_S, MirrorSchedule, create_compacted
from ottla.connect.mirror.metrics import MirrorMetrics
from ottla.connect.mirror.offset_syncs import SyncDecision
from ottla.connect.mirror.offsets import OFFSET, check_offsets
from ottla.connect.mirror.records import OffsetSync, parse_partitions
from ottla.connect.mirror.settings import (
    SOURCE,
    TASK_INDEX,
    TASK_PARTITIONS,
    MirrorSettings,
    NameFilter,
)
from ottla.connect.records import SourceRecord
from ottla.errors import ErrorCode, IllegalStateError, KafkaError, WakeupError
from ottla.security.acl import Operation, PatternType, Permission
from ottla.security.acl import ResourceType as AclResourceType
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.admin.configs import ConfigEntry
    from ottla.clients.blocking import Producer
    from ottla.clients.producer.batches import Delivery
    from ottla.config.definition import ConfigDefinitions
    from ottla.connect.metrics import MBean

log = logging.getLogger("ottla.connect")
_OUTSTANDING_MAX: Final = 10
"""Offset syncs on their way at a time; later ones replace earlier ones of their partition."""
_CLOSE_S: Final = 5.0
"""Time for the last offset syncs to be written."""
_POLL_RETRY_S: Final = 0.1
"""After an error of the source, which may come from every poll; the others' records go on."""
_OPTIONAL_BYTES: Final = BYTES.as_optional()


class MirrorSourceTask(SourceTask):
    """Copies the records of its partitions."""

    def start(self, config: Mapping[str, str]) -> None:
        """Begin after the last record that was copied."""
        settings = MirrorSettings(SOURCE, config)
        self._settings = settings
        self._wait_s: float = settings.values["consumer.poll.timeout.ms"] / 1000
        self._lag_max: int = settings.values["offset.lag.max"]
        partitions = list(parse_partitions(config[TASK_PARTITIONS]))
        self._targets = {
            it: settings.policy.format_remote_topic(settings.source, it.topic) for it in partitions
        }
        self._wrapped: dict[TopicPartition, Mapping[str, Any]] = {
            it: {"cluster": settings.source, "partition": it.partition, "topic": it.topic}
            for it in partitions
        }
        self._decisions: dict[TopicPartition, SyncDecision] = {}
        self._delayed: dict[TopicPartition, OffsetSync] = {}
        self._pending: dict[TopicPartition, OffsetSync] = {}
        self._outstanding: list[Delivery] = []
        self._metrics = MirrorMetrics(settings.source, settings.target)
        self._acknowledged: dict[TopicPartition, list[int]] = {}
        """Timestamps of records since the last poll, by partition of the target."""
        self._is_stopping = threading.Event()
        self._error_due_s = time.monotonic()
        self._lock = threading.Lock()  # as `stop` may come from another thread, at any time
        self._producer: Producer | None = None
        role = f"replication-consumer-{config.get(TASK_INDEX, 0)}"
        self._consumer = settings.consumer("source", role)
        self._consumer.assign(partitions)
        stored = self.context.offsets(self._wrapped.values())
        for partition, offset in zip(self._wrapped, stored, strict=True):
            if offset is not None:  # else auto.offset.reset says where to begin
                self._consumer.seek(partition, int(offset[OFFSET]) + 1)
        if settings.values["emit.offset-syncs.enabled"]:
            # after the consumer, so that `stop` closes both if one cannot start
            self._producer = settings.offset_sync_producer()

    def poll(self) -> Sequence[SourceRecord] | None:
        """Return the next records as they are to be in the target."""
        if self._acknowledged:
            self._metrics.wrote(self._acknowledged)
            self._acknowledged = {}
        with self._lock:
            if self._is_stopping.is_set():
                return None
            try:
                batches = self._consumer.poll_batches(self._wait_s)
            except WakeupError:
                return None
            except IllegalStateError:  # of a client that cannot go on
                raise
            except KafkaError as error:
                # it may pass, as a right that is missing for a moment: no task ends for it
                now_s = time.monotonic()
                if now_s >= self._error_due_s:
                    self._error_due_s = now_s + RETRY_S
                    log.warning("the source cannot be read for the moment: %s", error)
                self._is_stopping.wait(_POLL_RETRY_S)
                return None
        records = []
        for partition, batch in batches:
            topic, wrapped = self._targets[partition], self._wrapped[partition]
            number, size_bytes = partition.partition, 0
            for offset, timestamp, key, value, headers in batch:
                size_bytes += len(value) if value else 0
                copied = (
                    tuple([Header(name, BYTES, data) for name, data in headers]) if headers else ()
                )
                records.append(
                    SourceRecord(
                        topic, number, _OPTIONAL_BYTES, key, BYTES, value,
                        timestamp if timestamp >= 0 else None, copied, wrapped, {OFFSET: offset},
                    )
                )  # fmt: skip
            if batch:
                timestamps_ms = (batch[0][1], batch[-1][1])
                self._metrics.read(TopicPartition(topic, number), timestamps_ms, size_bytes)
        return records or None

    def metrics(self) -> Sequence[MBean]:
        """Return the beans of the partitions."""
        return self._metrics.beans()

    def commit_record(self, record: SourceRecord, offset: int | None) -> None:
        """Write an offset sync, now or at the next commit."""
        if offset is not None and record.timestamp_ms is not None and record.partition is not None:
            copy = TopicPartition(record.topic, record.partition)
            self._acknowledged.setdefault(copy, []).append(record.timestamp_ms)
        if self._producer is None or offset is None or offset < 0:
            return  # -1: the target knows the record, and not its offset
        assert record.source_partition is not None
        assert record.source_offset is not None
        partition = TopicPartition(
            record.source_partition["topic"], record.source_partition["partition"]
        )
        sync = OffsetSync(partition, record.source_offset[OFFSET], offset)
        decision = self._decisions.get(partition)
        if decision is None:
            decision = self._decisions[partition] = SyncDecision(self._lag_max)
        is_due = decision.is_due(sync.upstream, offset)
        with self._lock:
            if is_due:
                self._delayed.pop(partition, None)
                self._pending[partition] = sync
                self._write_syncs()
            else:
                self._delayed[partition] = sync

    def commit(self) -> None:
        """Write what was delayed: all before it is stored by now."""
        with self._lock:
            self._commit()

    def _commit(self) -> None:
        self._pending.update(self._delayed)
        self._delayed.clear()
        self._write_syncs()

    def _write_syncs(self) -> None:
        if self._producer is None:
            return
        for done in [it for it in self._outstanding if it.done]:
            self._outstanding.remove(done)
            if done.error is not None:
                log.error("an offset sync could not be written: %s", done.error)
        topic = self._settings.offset_syncs_topic
        while self._pending and len(self._outstanding) < _OUTSTANDING_MAX:
            sync = self._pending.pop(next(iter(self._pending)))
            try:
                sent = self._producer.send(topic, sync.value(), sync.key(), partition=0)
            except (KafkaError, TimeoutError) as error:
                # copies go on without it, as after a failure of the delivery
                log.warning("an offset sync could not be written: %s", error)
                return
            self._outstanding.append(sent)

    def stop(self) -> None:
        """Wake `poll` up, write the offset syncs that wait, and close the clients."""
        self._is_stopping.set()
        self._consumer.wakeup()
        with self._lock:
            self._commit()
            producer, self._producer = self._producer, None
            if producer is not None:
                producer.close(_CLOSE_S)
            self._consumer.close()


class MirrorSourceConnector(SourceConnector):
    """Follows the topics of the source, and keeps those of the target like them."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = SOURCE
    task_class = MirrorSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        """Create what is missing in the target, and begin to follow the source."""
        self._settings = settings = MirrorSettings(SOURCE, config)
        values = settings.values
        self._known: list[TopicPartition] = []
        self._has_logged_no_acls = False
        self._has_syncs_topic = not values["emit.offset-syncs.enabled"]
        self._schedule: MirrorSchedule | None = None
        if not values["enabled"]:
            return
        self._topics = settings.topics
        self._configs = NameFilter((".*",), values["config.properties.exclude"])
        self._source = settings.admin("source", "replication-source-admin")
        self._target = settings.admin("target", "replication-target-admin")
        self._schedule = MirrorSchedule("mirror-source")
        first_s = float(values["refresh.topics.interval.seconds"])
        try:
            self._refresh()
        except (KafkaError, TimeoutError):
            log.exception("the topics could not be listed or created")
            first_s = RETRY_S
        self._add_jobs(self._schedule, first_s)
        self._schedule.start()

    def _add_jobs(self, schedule: MirrorSchedule, first_s: float) -> None:
        values = self._settings.values
        jobs = (
            ("refresh.topics", "refreshing topics", self._refresh_tasks, first_s),
            ("sync.topic.configs", "syncing topic configs", self._sync_configs, 0.0),
            ("sync.topic.acls", "syncing topic ACLs", self._sync_acls, 0.0),
        )
        for prefix, what, work, wait_s in jobs:
            if values[f"{prefix}.enabled"]:
                schedule.every(values[f"{prefix}.interval.seconds"], what, work, wait_s)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Divide the partitions round robin."""
        texts = [f"{topic}-{partition}" for topic, partition in self._known]
        return self._settings.task_configs(TASK_PARTITIONS, texts, tasks_max)

    def stop(self) -> None:
        """End the schedule, and close the clients."""
        if self._schedule is not None:
            self._schedule.stop(self._settings.timeout_s)
            self._source.close()
            self._target.close()

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Support it if aborted records are not read."""
        levels = (
            config.get(f"{prefix}consumer.isolation.level")
            for prefix in ("source.", "source.cluster.", "")
        )
        level = next((it for it in levels if it is not None), None)
        is_supported = level == "read_committed"
        return ExactlyOnceSupport.SUPPORTED if is_supported else ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check that offsets are numbers, of partitions."""
        del config
        check_offsets(offsets, ("cluster", "topic", "partition"), only_zero=False)
        return True

    # ------------------------------------------------------------ topics

    def _is_mirrored(self, topic: str) -> bool:
        policy, values = self._settings.policy, self._settings.values
        is_chosen = self._topics.accepts(topic) or (
            values["heartbeats.replication.enabled"] and policy.is_heartbeats_topic(topic)
        )
        is_free = not policy.is_internal_topic(topic)
        return is_chosen and is_free and not policy.is_cycle(topic, self._settings.target)

    def _remote(self, topic: str) -> str:
        return self._settings.policy.format_remote_topic(self._settings.source, topic)

    def _refresh_tasks(self) -> None:
        if self._refresh():
            self.context.request_task_reconfiguration()

    def _refresh(self) -> bool:
        """Create topics and partitions in the target; return whether those of the source differ."""
        timeout_s = self._settings.timeout_s
        if not self._has_syncs_topic:
            self._create_syncs_topic()
        listed = self._source.list_topics(timeout=timeout_s)
        names = [it.name for it in listed if self._is_mirrored(it.name)]
        described = self._source.describe_topics(names, timeout=timeout_s) if names else {}
        counts = {}
        for name, it in described.items():
            if not isinstance(it, KafkaError):
                counts[str(name)] = len(it.partitions)
            elif it.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # not just deleted since
                raise it
        self._create(counts)
        partitions = [
            TopicPartition(name, it) for name, count in counts.items() for it in range(count)
        ]
        has_changed = set(partitions) != set(self._known)
        if has_changed:
            log.info("%s has %s partitions to mirror", self._settings.source, len(partitions))
            self._known = partitions
        return has_changed

    def _create_syncs_topic(self) -> None:
        """Create the topic of offset syncs; after an error the next refresh tries again."""
        settings = self._settings
        try:
            create_compacted(
                self._source if settings.syncs_at_source else self._target,
                settings.offset_syncs_topic,
                settings.values["offset-syncs.topic.replication.factor"],
                settings.timeout_s,
            )
            self._has_syncs_topic = True
        except (KafkaError, TimeoutError):
            log.exception("the topic of offset syncs could not be created")

    def _create(self, counts: Mapping[str, int]) -> None:
        timeout_s = self._settings.timeout_s
        there = {it.name for it in self._target.list_topics(timeout=timeout_s)}
        new = [it for it in counts if self._remote(it) not in there]
        if new:
            configs = self._source_configs(new)
            factor = self._settings.values["replication.factor"]
            topics = [
                NewTopic(
                    self._remote(it),
                    counts[it],
                    factor,
                    {entry.name: entry.value for entry in configs[it] if self._is_set(entry)},
                )
                for it in new
                if it in configs
            ]
            for name, outcome in self._target.create_topics(topics, timeout=timeout_s).items():
                exists = getattr(outcome, "code", None) == ErrorCode.TOPIC_ALREADY_EXISTS
                if isinstance(outcome, KafkaError) and not exists:
                    log.error("could not create topic %s: %s", name, outcome)
        old = [self._remote(it) for it in counts if it not in new]
        described = self._target.describe_topics(old, timeout=timeout_s) if old else {}
        grown = {}
        for name, count in counts.items():
            known = described.get(self._remote(name))
            if known is None or isinstance(known, KafkaError):
                continue
            if len(known.partitions) < count:
                grown[self._remote(name)] = count
        if grown:
            for name, error in self._target.create_partitions(grown, timeout=timeout_s).items():
                if error is not None:
                    log.error("could not add partitions to %s: %s", name, error)

    def _source_configs(self, topics: Sequence[str]) -> dict[str, list[ConfigEntry]]:
        """Return the configs of topics that the target may take over."""
        resources = [ConfigResource(ResourceType.TOPIC, it) for it in topics]
        described = self._source.describe_configs(resources, timeout=self._settings.timeout_s)
        return {
            resource.name: [
                it
                for it in entries.values()
                if not it.is_read_only
                and not it.is_sensitive
                and it.source != ConfigSource.STATIC_BROKER_CONFIG
                and self._configs.accepts(it.name)
            ]
            for resource, entries in described.items()
            if not isinstance(entries, KafkaError)
        }

    def _is_set(self, entry: ConfigEntry) -> bool:
        """Whether a value is set in the target, or is left to the target's defaults."""
        return not entry.is_default or self._settings.values["use.defaults.from"] == "source"

    def _sync_configs(self) -> None:
        names = list(dict.fromkeys(it.topic for it in self._known))
        if not names:
            return
        changes = {
            ConfigResource(ResourceType.TOPIC, self._remote(name)): [
                ConfigChange(it.name, it.value, AlterOperation.SET)
                if self._is_set(it)
                else ConfigChange(it.name, None, AlterOperation.DELETE)
                for it in entries
            ]
            for name, entries in self._source_configs(names).items()
        }
        outcomes = self._target.alter_configs(changes, timeout=self._settings.timeout_s)
        for resource, error in outcomes.items():
            if error is not None:
                log.warning("Could not alter configuration of topic %s: %s", resource.name, error)

    def _sync_acls(self) -> None:
        """Give those who may read a topic the same right on its copy; nothing is taken away."""
        topics = {it.topic for it in self._known}
        literal = ANY_ACL._replace(
            resource_type=AclResourceType.TOPIC, pattern_type=PatternType.LITERAL
        )
        try:
            acls = self._source.describe_acls(literal, timeout=self._settings.timeout_s)
        except KafkaError as error:
            if error.code != ErrorCode.SECURITY_DISABLED:
                raise
            if not self._has_logged_no_acls:
                log.info("ACLs are not synced: the source cluster has no authorizer")
                self._has_logged_no_acls = True
            return
        copies = []
        for acl in acls:
            allows = acl.permission == Permission.ALLOW
            if acl.resource_name not in topics or (allows and acl.operation == Operation.WRITE):
                continue
            is_all = allows and acl.operation == Operation.ALL
            copies.append(
                acl._replace(
                    resource_name=self._remote(acl.resource_name),
                    operation=Operation.READ if is_all else acl.operation,
                )
            )
        if copies:
            outcomes = self._target.create_acls(copies, timeout=self._settings.timeout_s)
            for acl, failed in outcomes.items():
                if failed is not None:
                    log.warning("Could not sync ACL of topic %s: %s", acl.resource_name, failed)
