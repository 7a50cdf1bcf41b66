"""One partition of `__consumer_offsets` as a state machine, and its records as bytes.

A key is the number of the record's type (int16) and a message of version 0; a value is its version
(int16) and a message of that version.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorShard;
org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import logging
from functools import partial
from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import group_admin
from ottla.coordinator.group.classic import rebalance
from ottla.coordinator.group.classic.group import RECORD_TYPES as CLASSIC_RECORDS
from ottla.coordinator.group.classic.group import SIMPLE, ClassicState, StoredGroup
from ottla.coordinator.group.group_kind import GroupEnvironment, RecordType
from ottla.coordinator.group.groups import KINDS, Groups
from ottla.coordinator.group.migration import conversion
from ottla.coordinator.group.offsets import records as offset_records
from ottla.coordinator.group.offsets import removal
from ottla.coordinator.group.offsets.records import OffsetKey
from ottla.coordinator.group.responses import join_error, sync_error
from ottla.coordinator.group.share import initialization
from ottla.coordinator.group.topic_hashes import TopicHashes
from ottla.coordinator.runtime import CoordinatorRecord
from ottla.coordinator.runtime.shard import Result, empty_result, sweep
from ottla.errors import CorruptMessage, ErrorCode
from ottla.protocol import codec
from ottla.protocol.records import group as schemas
from ottla.timeline import TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.coordinator.group.classic.group import ClassicGroup
    from ottla.coordinator.group.context import GroupCoordinatorConfig, GroupDependencies
    from ottla.coordinator.group.groups import Kinds
    from ottla.coordinator.runtime import ShardEnvironment
    from ottla.types import Uuid


_INT16: Final = Layout(">h")
_OFFSET_RECORDS: Final = (
    RecordType(0, schemas.LegacyOffsetCommitKey, schemas.LegacyOffsetCommitValue),
    RecordType(1, schemas.OffsetCommitKey, schemas.OffsetCommitValue),
)
_OFFSET_NUMBERS: Final = (0, 1)


class _RecordSerde:
    """Encodes and decodes the records of some kinds of groups, of classic ones, and of offsets."""

    def __init__(self, kinds: Kinds = KINDS) -> None:
        types = [record for kind in kinds for record in kind.record_types()]
        self._types = {
            record.number: record for record in (*_OFFSET_RECORDS, *CLASSIC_RECORDS, *types)
        }
        self._numbers = {record.key: number for number, record in self._types.items()}

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return the bytes of key and value."""
        key, value, version = record
        if type(key) is offset_records.OffsetKey:
            return offset_records.encode(key, value, version)
        stored_key = _INT16.pack(self._numbers[type(key)]) + codec.to_bytes(key, 0)
        if value is None:
            return stored_key, None
        return stored_key, _INT16.pack(version) + codec.to_bytes(value, version)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record; None for types not known here. Raises CorruptMessage."""
        record = self._types.get(_prefix(key))
        if record is None:
            return None
        decoded_key = codec.decode(record.key, 0, memoryview(key)[2:])
        decoded_value, version = None, 0
        if value is not None:
            version = _prefix(value)
            decoded_value = codec.decode(record.value, version, memoryview(value)[2:])
        if record.number in _OFFSET_NUMBERS:
            return offset_records.from_messages(decoded_key, decoded_value)
        return CoordinatorRecord(decoded_key, decoded_value, version)


def _prefix(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptMessage("a coordinator record ends before its version")
    number: int = _INT16.unpack_from(data)[0]
    return number


log = logging.getLogger("ottla.groups")
EXPIRY_KEY: Final = "expire-group-metadata"
_RETRY_MS: Final = 1000
"""Until what is left of deleted topics is removed again whose records were refused."""
_EXPIRY_SLICE_KEY: Final = "expire-more-group-metadata"


class GroupShard:
    """Replayed: the table of groups, their offsets. Soft: `classic.live`, timers."""

    is_compacted = True

    def __init__(
        self,
        environment: ShardEnvironment,
        config: GroupCoordinatorConfig,
        new_uuid: Callable[[], str],
        dependencies: GroupDependencies,
        kinds: Kinds = KINDS,
    ) -> None:
        self.partition = environment.partition
        self._config = config
        self._timers = environment.timers
        self.groups = Groups(
            GroupEnvironment(
                config,
                environment.registry,
                environment.timers,
                environment.clock,
                dependencies,
                table=TimelineDict(environment.registry),
                hashes=TopicHashes(dependencies.topics),
            ),
            new_uuid,
            kinds,
        )
        self.classic = self.groups.classic
        self.consumer = self.groups.consumer
        self.streams = self.groups.streams
        self.share = self.groups.share
        self.offsets = self.groups.offsets
        self._deleted_topics: dict[tuple[str, Uuid], None] = {}
        """Whose offsets may not all be gone: an append may have been refused."""
        self.consumer.downgrade = partial(conversion.after_leave, self.groups)
        serde = _RecordSerde(kinds)
        self.encode, self.decode = serde.encode, serde.decode

    # ---------------------------------------------------------------- replay

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply one record. Tombstones of unknown keys have no effect."""
        key, value = record.key, record.value
        by_id = self.groups.by_id
        if type(key) is OffsetKey:
            group_id, partition = key
            if value is not None and group_id not in by_id:
                by_id[group_id] = SIMPLE
            self.offsets.replay(group_id, partition, value, offset, producer_id)
        elif type(key) is schemas.GroupMetadataKey:
            self._replay_generation(key.group, value)
        elif (kind := self.groups.kind_of_record.get(type(key))) is not None:
            kind.replay(key, value, offset)
            if value is not None:
                self.classic.remove_empty(key.group_id)
            elif key.group_id not in by_id and self.offsets.has_any(key.group_id):
                # its offsets outlive it, so that they are found and expire
                by_id[key.group_id] = SIMPLE

    def _replay_generation(self, group_id: str, value: schemas.GroupMetadataValue | None) -> None:
        """Apply the generation of a classic group; without one its offsets keep a simple group.

        The group may have had members: of a compacted log nothing says so, and Kafka finds it, too,
        after a load.
        """
        by_id = self.groups.by_id
        if value is not None:
            by_id[group_id] = StoredGroup(value)
            return
        if type(by_id.get(group_id, SIMPLE)) is StoredGroup:
            if self.offsets.has_any(group_id):
                by_id[group_id] = SIMPLE
            else:
                by_id.pop(group_id, None)
        self.classic.remove_empty(group_id)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a transaction that committed or aborted staged offsets."""
        self.offsets.replay_end_transaction(producer_id, committed=committed)

    # ---------------------------------------------------------------- lifecycle

    def on_loaded(self) -> Iterator[None]:
        """Start a full session for every stored member, and schedule the expiry of offsets."""
        self._schedule_expiry()
        by_id = self.groups.by_id
        count = 0  # of the classic groups: to count them first would be a long turn
        for group_id in tuple(by_id):
            group = by_id.get(group_id)
            if type(group) is not StoredGroup:
                if group is not None:  # it may be gone between two steps
                    yield from self.groups.kind_of_group[type(group)].restart(group)
            elif group is not SIMPLE:
                count += 1
                yield from self._restart(self.classic.get(group_id))
            yield
        if count:
            log.info("loaded %d groups", count, extra={"event": "groups.loaded"})

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

    def stalls(self, *, is_writing: bool) -> Iterator[str]:
        """Yield members that wait without an end, and those that nothing would remove."""
        if EXPIRY_KEY not in self._timers:
            yield "no timer expires offsets"
        for group in self.classic.shown():
            yield from rebalance.stalls(self.classic, group, is_writing=is_writing)
        for kind in self.groups.kind_of_group.values():
            for group in kind.all():
                yield from kind.stalls(group, is_writing=is_writing)

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(EXPIRY_KEY, interval_ms, self._expire, retry_ms=interval_ms)

    def _expire(self) -> Result[None]:
        """Remove expired offsets, and those that deleted topics have left in spite of their sweep.

        A deleted topic is looked for until a whole pass finds no offset of it.
        """
        self._schedule_expiry()
        group_ids = self.groups.ids()
        if not group_ids:
            self._deleted_topics.clear()
        topics = tuple(self._deleted_topics)
        by_name = removal.ids_by_name(topics)
        has_found = False

        def examine(group_id: str) -> tuple[list[CoordinatorRecord], float]:
            nonlocal has_found
            records, cost = group_admin.expired_of_group(self.groups, group_id)
            if topics:
                tombstones, more_cost = removal.deleted_of_group(self.groups, by_name, group_id)
                has_found |= bool(tombstones)
                expired = {record.key for record in records if type(record.key) is OffsetKey}
                records += [record for record in tombstones if record.key not in expired]
                cost += more_cost
            if group_id == group_ids[-1] and not has_found:
                for topic in topics:
                    self._deleted_topics.pop(topic, None)
            return records, cost

        self._timers.write_all(_EXPIRY_SLICE_KEY, sweep(group_ids, examine))
        return empty_result()

    def delete_topics(self, topics: tuple[tuple[str, Uuid], ...]) -> Result[None]:
        """Delete the offsets of deleted topics, given by name and id."""
        self._deleted_topics.update(dict.fromkeys(topics))
        ids = removal.ids_by_name(topics)
        examine = partial(removal.deleted_of_group, self.groups, ids)
        group_ids = self.groups.offsets.group_ids()
        self._timers.write_all(("deleted", topics), sweep(group_ids, examine))
        return empty_result()

    def forget_share_states(self, topics: tuple[tuple[str, Uuid], ...]) -> None:
        """Remove deleted topics from the share partitions of all groups, until that is written."""
        ids = [topic_id for _, topic_id in topics]
        self._timers.schedule(
            ("forget-share-states", topics),
            0,
            lambda: Result(None, initialization.forget_topics(self.share, ids), atomic=False),
            retry_ms=_RETRY_MS,
        )
