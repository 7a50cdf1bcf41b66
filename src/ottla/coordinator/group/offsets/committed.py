"""Committed offsets of all groups of a shard: replayed state.

Kafka: org.apache.kafka.coordinator.group.OffsetMetadataManager's state, OffsetAndMetadata.

Offsets of an open transaction are staged under its producer until its marker: on commit each one
takes effect unless the group has committed a later record meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.timeline import TimelineDict
from ottla.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.timeline import SnapshotRegistry

_new_tuple: Final = tuple.__new__


class CommittedOffset(NamedTuple):
    """A committed offset; record_offset is the offset of its record in the coordinator's log."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1


StagedKey: TypeAlias = tuple[str, TopicPartition]
GroupOffsets: TypeAlias = TimelineDict[TopicPartition, CommittedOffset]


class Offsets:
    """Offsets by group and partition; transactional ones are staged by producer."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self.commits = self.deletions = self.expirations = 0
        """How many offsets, since the shard was loaded."""
        self.by_group: TimelineDict[str, GroupOffsets] = TimelineDict(registry)
        self._staged: TimelineDict[int, TimelineDict[StagedKey, CommittedOffset]]
        self._staged = TimelineDict(registry)
        # the reverse index, partition → producers, for fetches
        self._stagers: TimelineDict[str, TimelineDict[TopicPartition, tuple[int, ...]]]
        self._stagers = TimelineDict(registry)

    # ---------------------------------------------------------------- queries

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the newest offset; None when there is none."""
        offsets = self.by_group.get(group_id)
        committed: CommittedOffset | None = None if offsets is None else offsets.get(partition)
        return committed

    def of_group(self, group_id: str, epoch: int) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a group's offsets at an epoch."""
        offsets = self.by_group.get_at(group_id, epoch)
        return {} if offsets is None else offsets.at(epoch)

    def staged_of_group(self, group_id: str, epoch: int) -> Mapping[TopicPartition, object]:
        """Return the partitions with offsets in open transactions, at an epoch."""
        stagers = self._stagers.get_at(group_id, epoch)
        return {} if stagers is None else stagers.at(epoch)

    def has_any(self, group_id: str) -> bool:
        """Whether a group has offsets, committed or in an open transaction."""
        return group_id in self.by_group or group_id in self._stagers

    def has_staged(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether an open transaction has an offset of the group, or of that partition."""
        stagers = self._stagers.get(group_id)
        return bool(stagers) and (partition is None or partition in stagers)

    def staged_partitions(self, group_id: str) -> tuple[TopicPartition, ...]:
        """Return the partitions with offsets in open transactions."""
        return tuple(self._stagers.get(group_id, ()))

    def group_ids(self) -> list[str]:
        """Return the ids of all groups with committed or staged offsets."""
        return list(dict.fromkeys((*self.by_group, *self._stagers)))

    def all_of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Yield all committed offsets of a group, and staged ones of other partitions."""
        committed = self.by_group.get(group_id, {})
        yield from committed.items()
        for partition, producers in self._stagers.get(group_id, {}).items():
            if partition not in committed:
                for producer_id in producers:
                    yield partition, self._staged[producer_id][group_id, partition]

    # ---------------------------------------------------------------- replay

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: CommittedOffset | None,
        record_offset: int,
        producer_id: int,
    ) -> None:
        """Apply an offset commit; a tombstone removes the offset and its staged ones."""
        if value is None:
            self._remove(group_id, partition)
            return
        committed = _new_tuple(CommittedOffset, (*value[:-1], record_offset))
        if producer_id == -1:
            self._put(group_id, partition, committed)
        else:
            self._stage(producer_id, group_id, partition, committed)

    def replay_all(
        self, group_id: str, items: list[tuple[TopicPartition, CommittedOffset]]
    ) -> None:
        """Apply offset commits of a group outside of transactions, with their record offsets."""
        offsets = self.by_group.get(group_id)
        if offsets is None:
            offsets = self.by_group[group_id] = TimelineDict(self._registry)
        offsets.set_all(items)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a transaction; producers without staged offsets are ignored."""
        staged = self._staged.pop(producer_id, None)
        if staged is None:
            return
        for (group_id, partition), offset in staged.items():
            self._drop_stager(group_id, partition, producer_id)
            existing = self.get(group_id, partition)
            is_newer = existing is None or offset.record_offset > existing.record_offset
            if committed and is_newer:
                self._put(group_id, partition, offset)

    def _put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is None:
            offsets = self.by_group[group_id] = TimelineDict(self._registry)
        offsets[partition] = committed

    def _stage(
        self, producer_id: int, group_id: str, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        staged = self._staged.get(producer_id)
        if staged is None:
            staged = self._staged[producer_id] = TimelineDict(self._registry)
        staged[group_id, partition] = offset
        stagers = self._stagers.get(group_id)
        if stagers is None:
            stagers = self._stagers[group_id] = TimelineDict(self._registry)
        producers = stagers.get(partition, ())
        if producer_id not in producers:
            stagers[partition] = (*producers, producer_id)

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self.by_group.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None and not offsets:
            del self.by_group[group_id]
        stagers = self._stagers.get(group_id)
        for producer_id in () if stagers is None else stagers.get(partition, ()):
            staged = self._staged.get(producer_id)
            if staged is not None and staged.pop((group_id, partition), None) and not staged:
                del self._staged[producer_id]
            self._drop_stager(group_id, partition, producer_id)

    def _drop_stager(self, group_id: str, partition: TopicPartition, producer_id: int) -> None:
        stagers = self._stagers.get(group_id)
        if stagers is None or partition not in stagers:
            return
        remaining = tuple(p for p in stagers[partition] if p != producer_id)
        if remaining:
            stagers[partition] = remaining
            return
        del stagers[partition]
        if not stagers:
            del self._stagers[group_id]
