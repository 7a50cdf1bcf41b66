"""Heartbeats: a record a second in the target shows that the mirror lives.

Kafka: org.apache.kafka.connect.mirror.{MirrorHeartbeatConnector, MirrorHeartbeatTask}.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.connect import PLUGIN_VERSION
from ottla.connect.connector import SourceConnector, SourceTask
from ottla.connect.data import BYTES
from ottla.connect.mirror.clusters import RETRY_S, MirrorSchedule, create_compacted
from ottla.connect.mirror.offsets import check_offsets
from ottla.connect.mirror.policy import HEARTBEATS
from ottla.connect.mirror.records import MirrorHeartbeat
from ottla.connect.mirror.settings import HEARTBEAT, MirrorSettings
from ottla.connect.records import SourceRecord
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.config.definition import ConfigDefinitions

log = logging.getLogger("ottla.connect")


class MirrorHeartbeatTask(SourceTask):
    """Writes heartbeats."""

    def start(self, config: Mapping[str, str]) -> None:
        """Take the settings."""
        settings = MirrorSettings(HEARTBEAT, config)
        self._settings = settings
        self._interval_s: int = settings.values["emit.heartbeats.interval.seconds"]
        self._is_stopped = threading.Event()

    def poll(self) -> Sequence[SourceRecord] | None:
        """Wait for the interval and return a heartbeat."""
        if self._is_stopped.wait(self._interval_s):
            return None
        source, target = self._settings.source, self._settings.target
        now_ms = time.time_ns() // 1_000_000
        heartbeat = MirrorHeartbeat(source, target, now_ms)
        return [
            SourceRecord(
                HEARTBEATS, 0, BYTES, heartbeat.key(), BYTES, heartbeat.value(), now_ms, (),
                {"sourceClusterAlias": source, "targetClusterAlias": target}, {"offset": 0},
            )
        ]  # fmt: skip

    def stop(self) -> None:
        """Wake `poll` up."""
        self._is_stopped.set()


class MirrorHeartbeatConnector(SourceConnector):
    """Creates the topic of heartbeats, and has one task."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = HEARTBEAT
    task_class = MirrorHeartbeatTask

    def start(self, config: Mapping[str, str]) -> None:
        """Create the topic; after an error it is tried again, and no task runs before."""
        self._settings = settings = MirrorSettings(HEARTBEAT, config)
        self._has_topic = False
        self._schedule = MirrorSchedule("mirror-heartbeat")
        if not settings.values["emit.heartbeats.enabled"]:
            return
        try:
            self._create_topic()
        except (KafkaError, TimeoutError):
            log.exception("the topic of heartbeats could not be created")
            what = "creating the topic of heartbeats"
            self._schedule.every(RETRY_S, what, self._begin_later, RETRY_S)
            self._schedule.start()

    def _create_topic(self) -> None:
        settings = self._settings
        with settings.admin("target", "heartbeats") as admin:
            factor = settings.values["heartbeats.topic.replication.factor"]
            create_compacted(admin, HEARTBEATS, factor, settings.timeout_s)
        self._has_topic = True

    def _begin_later(self) -> None:
        if not self._has_topic:
            self._create_topic()
            self.context.request_task_reconfiguration()

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the settings of the only task."""
        del tasks_max
        return [self._settings.config] if self._has_topic else []

    def stop(self) -> None:
        """End the schedule."""
        self._schedule.stop(self._settings.timeout_s)

    def alter_offsets(
        self,
        config: Mapping[str, str],
        offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    ) -> bool:
        """Check that offsets are 0, of two aliases."""
        del config
        check_offsets(offsets, ("sourceClusterAlias", "targetClusterAlias"), only_zero=True)
        return True
