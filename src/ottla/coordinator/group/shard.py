"""One partition of `__consumer_offsets` as a state machine.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorShard.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.group import group_admin, records
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.classic.groups import ClassicGroups
from ottla.coordinator.group.config import ShareGroupConfig
from ottla.coordinator.group.consumer import replay as consumer_replay
from ottla.coordinator.group.consumer import timeouts
from ottla.coordinator.group.consumer.groups import ConsumerGroups
from ottla.coordinator.group.groups import Groups
from ottla.coordinator.group.migration import downgrade
from ottla.coordinator.group.offsets import removal
from ottla.coordinator.group.offsets.committed import Offsets
from ottla.coordinator.group.offsets.records import OffsetKey
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.coordinator.group.share import heartbeat as share_heartbeat
from ottla.coordinator.group.share import replay as share_replay
from ottla.coordinator.group.share.groups import ShareGroups
from ottla.coordinator.group.streams import replay as streams_replay
from ottla.coordinator.group.streams import timeouts as streams_timeouts
from ottla.coordinator.group.streams.groups import StreamsGroups
from ottla.coordinator.runtime.result import Result
from ottla.coordinator.runtime.sweeps import Sweep
from ottla.errors import ErrorCode
from ottla.protocol.records import group as schemas
from ottla.timeline import TimelineDict, TimelineSet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.coordinator.group.config import (
        ConsumerGroupConfig,
        GroupCoordinatorConfig,
        StreamsGroupConfig,
    )
    from ottla.coordinator.group.context import TopicNames
    from ottla.coordinator.runtime import CoordinatorRecord, Result, ShardEnvironment
    from ottla.coordinator.runtime.sweeps import Examine
    from ottla.types import Uuid

log = logging.getLogger("ottla.groups")
EXPIRY_KEY: Final = "expire-group-metadata"
_EXPIRY_SLICE_KEY: Final = "expire-more-group-metadata"


def default_share_settings(_group_id: str) -> ShareGroupConfig:
    """Return Kafka's defaults for every share group."""
    return ShareGroupConfig()


class ConsumerDependencies(NamedTuple):
    """What the consumer groups of all shards share; see `ConsumerGroups`."""

    topics: TopicNames
    settings: Callable[[str], ConsumerGroupConfig]
    new_member_id: Callable[[], str]
    streams_settings: Callable[[str], StreamsGroupConfig]
    share_settings: Callable[[str], ShareGroupConfig] = default_share_settings


class GroupShard:
    """Replayed: stored classic groups, consumer groups, offsets. Soft: `classic.live`, timers."""

    is_compacted = True

    def __init__(
        self,
        environment: ShardEnvironment,
        config: GroupCoordinatorConfig,
        new_uuid: Callable[[], str],
        consumer: ConsumerDependencies,
    ) -> None:
        self._turns = environment.turns
        self.partition = environment.partition
        self._config = config
        self._timers = environment.timers
        self.classic = ClassicGroups(
            config=config,
            timers=environment.timers,
            clock=environment.clock,
            new_uuid=new_uuid,
            stored=TimelineDict(environment.registry),
            simple=TimelineSet(environment.registry),
            has_other_kind=self._has_modern_group,
        )
        self.consumer = ConsumerGroups(
            registry=environment.registry,
            timers=environment.timers,
            clock=environment.clock,
            topics=consumer.topics,
            settings=consumer.settings,
            new_member_id=consumer.new_member_id,
        )
        self.streams = StreamsGroups(
            registry=environment.registry,
            timers=environment.timers,
            clock=environment.clock,
            topics=consumer.topics,
            settings=consumer.streams_settings,
            consumer=self.consumer,
        )
        self.share = ShareGroups(
            registry=environment.registry,
            timers=environment.timers,
            clock=environment.clock,
            topics=consumer.topics,
            settings=consumer.share_settings,
            consumer=self.consumer,
        )
        self.offsets = Offsets(environment.registry)
        self.groups = Groups(self.classic, self.consumer, self.streams, self.share, self.offsets)
        self.consumer.downgrade = partial(downgrade.after_leave, self.groups)

    def _has_modern_group(self, group_id: str) -> bool:
        found = self.consumer.find(group_id) or self.streams.find(group_id)
        return found is not None or group_id in self.share.by_id

    # ---------------------------------------------------------------- replay

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply one record. Tombstones of unknown keys have no effect."""
        key, value = record.key, record.value
        if type(key) is OffsetKey:
            name, partition = key
            if value is not None and name not in self.classic.simple:
                self._add_simple(name)
            self.offsets.replay(name, partition, value, offset, producer_id)
        elif isinstance(key, schemas.GroupMetadataKey):
            assert value is None or isinstance(value, schemas.GroupMetadataValue)
            self._replay_group(key.group, value)
        elif share_replay.replay(self.share, key, value, offset) is None:
            group_id = consumer_replay.replay(self.consumer, key, value) or streams_replay.replay(
                self.streams, key, value
            )
            if group_id is not None and value is not None:
                self.classic.simple.discard(group_id)
                self.classic.remove_empty(group_id)
            elif group_id is not None and self.offsets.has_any(group_id):
                self._add_simple(group_id)

    def _replay_group(self, group_id: str, value: schemas.GroupMetadataValue | None) -> None:
        if value is not None:
            self.consumer.by_id.pop(group_id, None)
            self.streams.by_id.pop(group_id, None)
            self.classic.stored[group_id] = value
            return
        self.classic.stored.pop(group_id, None)
        if self.offsets.has_any(group_id):
            self._add_simple(group_id)
        else:
            self.classic.simple.discard(group_id)
        self.classic.remove_empty(group_id)

    def _add_simple(self, group_id: str) -> None:
        """Add a group that has offsets and nothing else, so that they are found and expire.

        It may have had members: of a compacted log nothing says so, and Kafka finds it, too, after
        a load.
        """
        if group_id not in self.classic.stored and not self._has_modern_group(group_id):
            self.classic.simple.add(group_id)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a transaction that committed or aborted staged offsets."""
        self.offsets.replay_end_transaction(producer_id, committed=committed)

    encode = staticmethod(records.encode)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record of bytes; None for kinds not known here."""
        return records.decode(key, value)

    # ---------------------------------------------------------------- lifecycle

    def on_loaded(self) -> Iterator[None]:
        """Start a full session for every stored member, and schedule the expiry of offsets."""
        self._schedule_expiry()
        stored = tuple(self.classic.stored)
        if stored:
            log.info("loaded %d groups", len(stored), extra={"event": "groups.loaded"})
        for group_id in stored:
            if group_id in self.classic.stored:
                yield from self._restart(self.classic.get(group_id))
        yield from self.consumer.start_all(partial(timeouts.follow, self.consumer))
        yield from self.streams.start_all(partial(streams_timeouts.follow, self.streams))
        yield from self.share.start_all(partial(share_heartbeat.start_session, self.share))

    def _restart(self, group: ClassicGroup) -> Iterator[None]:
        for member in tuple(group.members.values()):
            if member.member_id in group.members:
                rebalance.reschedule(self.classic, group, member)
            yield
        if len(group.members) > self._config.group_max_size:
            rebalance.prepare_rebalance(self.classic, group)
        yield

    def on_unloaded(self) -> None:
        """Fail all pending joins and syncs with NOT_COORDINATOR."""
        code = ErrorCode.NOT_COORDINATOR
        for group in tuple(self.classic.live.values()):
            group.move_to(ClassicState.DEAD, self.classic.clock.now_ms())
            for member in tuple(group.members.values()):
                group.complete_join(member, join_error(code))
                group.complete_sync(member, sync_error(code))
        self.classic.live.clear()

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(EXPIRY_KEY, interval_ms, self._expire, retry_ms=interval_ms)

    def _expire(self) -> Result[None]:
        self._schedule_expiry()
        examine = partial(group_admin.expired_of_group, self.groups)
        return self._sweep(_EXPIRY_SLICE_KEY, self.groups.ids(), examine)

    def delete_topics(self, topics: tuple[tuple[str, Uuid], ...]) -> Result[None]:
        """Delete the offsets of deleted topics, given by name and id."""
        ids = removal.ids_by_name(topics)
        examine = partial(removal.deleted_of_group, self.groups, ids)
        group_ids = self.groups.offsets.group_ids()
        return self._sweep(("deleted", topics), group_ids, examine)

    def _sweep(self, key: Hashable, group_ids: list[str], examine: Examine[str]) -> Result[None]:
        return Sweep(self._timers, self._turns, key, group_ids, examine).begin()
