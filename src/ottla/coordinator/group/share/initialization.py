"""Which share partitions have a state at the share coordinator, and which are to get one.

A partition is assigned only once it is initialised. The record of those that are being initialised
is written first; the state is requested then, and the record changes again with the answer. What is
not answered within the retry interval is requested again by a heartbeat.

Kafka: GroupMetadataManager.{maybeCreateInitializeShareGroupStateRequest,
addInitializingTopicsRecords, initializeShareGroupState, uninitializeShareGroupState,
initializedAssignmentPending, maybeCleanupShareGroupState}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.coordinator.group.share.group import InProgress, StatePartitions, TopicParts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.kind import ShareGroups
    from ottla.coordinator.runtime import CoordinatorRecord
    from ottla.types import Uuid

    _Topics: TypeAlias = "dict[Uuid, TopicParts]"

_UNKNOWN_NAME: Final = "<UNKNOWN>"
_NEVER: Final = 2**63
"""No record has this offset."""


@dataclass(slots=True)
class Initialization:
    """Share partitions that are to be initialised: offset -1 lets the leader choose the start.

    written_offset is that of the record that says so, once it is committed.
    """

    group_id: str
    state_epoch: int
    offsets: Mapping[Uuid, Mapping[int, int]]
    written_offset: int = -1

    def written(self, offset: int) -> None:
        """Take note of the record's offset."""
        self.written_offset = offset


def begin(
    groups: ShareGroups,
    group: ShareGroup,
    epoch: int,
    topics: Iterable[str],
    output: list[CoordinatorRecord],
) -> Initialization | None:
    """Return the share partitions of subscribed topics that have no state yet; None without any."""
    missing = _missing(groups, group, topics)
    if not missing:
        if epoch == group.epoch:  # else the topics are those of a change that may be reverted
            group.initialized_at = epoch, group.state_partitions
        return None
    output.append(initializing(groups, group, missing))
    offsets = {
        topic_id: dict.fromkeys(sorted(one.partitions), -1) for topic_id, one in missing.items()
    }
    return Initialization(group.group_id, epoch, offsets)


def is_complete(group: ShareGroup) -> bool:
    """Whether an earlier heartbeat has found no partition missing, and nothing has changed since.

    Valid for a group whose metadata is fresh. Partitions that are being initialised may be due for
    another request at any time.
    """
    known = group.state_partitions
    if group.initialized_at is None or (known is not None and known.initializing):
        return False
    epoch, found = group.initialized_at
    return epoch == group.epoch and found is known


def initializing(
    groups: ShareGroups, group: ShareGroup, added: Mapping[Uuid, TopicParts]
) -> CoordinatorRecord:
    """Return the record with more share partitions that are being initialised."""
    known = group.state_partitions or StatePartitions()
    begun = _combine(known.initializing, added)
    deleting = known.deleting.difference(begun)
    return record_of(groups, group.group_id, StatePartitions(begun, known.initialized, deleting))


def record_of(groups: ShareGroups, group_id: str, known: StatePartitions) -> CoordinatorRecord:
    """Return the record of a group's share partitions."""
    return groups.state_partitions(
        group_id, known.initializing, known.initialized, _named(groups, known.deleting)
    )


def _missing(
    groups: ShareGroups, group: ShareGroup, topics: Iterable[str]
) -> dict[Uuid, TopicParts]:
    now_ms = groups.clock.now_ms()
    known = group.state_partitions or StatePartitions()
    retry_ms = groups.settings(group.group_id).initialize_retry_interval_ms
    in_progress = {
        topic_id: one
        for topic_id, one in known.initializing.items()
        if now_ms - one.timestamp_ms < retry_ms
    }
    begun = _combine(known.initialized, in_progress)
    missing = {}
    for name in sorted(topics):
        topic_id, count = groups.topics.topic_id(name), groups.topics.partition_count(name)
        if topic_id is None or count is None:
            continue
        known_count = len(begun[topic_id].partitions) if topic_id in begun else 0
        if known_count >= count:  # a topic's partitions only grow in number
            continue
        missing_indexes = frozenset(range(count))
        if topic_id in begun:
            missing_indexes -= begun[topic_id].partitions
        if missing_indexes:
            missing[topic_id] = TopicParts(name, missing_indexes, now_ms)
    return missing


def _answered(groups: ShareGroups, known: StatePartitions, begun: Initialization) -> _Topics:
    """Return the share partitions for which an answer is.

    It may come late: what is not being initialised any more, such as partitions of a topic that was
    deleted meanwhile, has no state, or was answered for before; what was begun later, as by a new
    group of the same name, has an answer of its own.
    """
    topics = {}
    for topic_id, offsets in begun.offsets.items():
        parts = frozenset(
            index
            for index in offsets
            if known.since.get(InProgress(topic_id, index), _NEVER) <= begun.written_offset
        )
        if parts:
            name = groups.topics.topic_name(topic_id) or _UNKNOWN_NAME
            topics[topic_id] = TopicParts(name, parts)
    return topics


def complete(groups: ShareGroups, begun: Initialization) -> list[CoordinatorRecord]:
    """Return the record of share partitions that now have a state."""
    group_id = begun.group_id
    group = groups.find(group_id)
    known = None if group is None else group.state_partitions
    done = {} if known is None else _answered(groups, known, begun)
    if known is None or not done:
        return []
    return [
        groups.state_partitions(
            group_id,
            _without(known.initializing, done),
            _combine(known.initialized, done),
            _named(groups, known.deleting),
        )
    ]


def give_up(groups: ShareGroups, begun: Initialization) -> list[CoordinatorRecord]:
    """Return the record of share partitions whose state could not be made."""
    group_id = begun.group_id
    group = groups.find(group_id)
    known = None if group is None else group.state_partitions
    failed = {} if known is None else _answered(groups, known, begun)
    if known is None or not failed:
        return []
    return [
        groups.state_partitions(
            group_id,
            _without(known.initializing, failed),
            known.initialized,
            _named(groups, known.deleting),
        )
    ]


def is_assignment_due(group: ShareGroup) -> bool:
    """Whether initialised partitions of subscribed topics are not in the target assignment."""
    known = group.state_partitions
    if group.is_empty or known is None or not known.initialized:
        return False
    if group.assigned_at is not None and group.assigned_at[2] is known:
        epochs = group.assigned_at[:2]
        if epochs == (group.epoch, group.assignment_epoch):
            return False
    topics = group.subscribed_topics()
    assigned: dict[Uuid, set[int]] = {}
    for target in group.target.values():
        for topic_id, indexes in target.items():
            assigned.setdefault(topic_id, set()).update(indexes)
    is_due = any(
        one.name in topics and assigned.get(topic_id, set()) != set(one.partitions)
        for topic_id, one in known.initialized.items()
    )
    group.assigned_at = None if is_due else (group.epoch, group.assignment_epoch, known)
    return is_due


def forget_topics(groups: ShareGroups, topic_ids: Iterable[Uuid]) -> list[CoordinatorRecord]:
    """Return the records of the share partitions without those of deleted topics."""
    deleted = frozenset(topic_ids)
    output = []
    for group in groups.all():
        known = group.state_partitions
        if known is None:
            continue
        if deleted.isdisjoint((*known.initializing, *known.initialized, *known.deleting)):
            continue
        output.append(
            groups.state_partitions(
                group.group_id,
                {key: one for key, one in known.initializing.items() if key not in deleted},
                {key: one for key, one in known.initialized.items() if key not in deleted},
                _named(groups, known.deleting - deleted),
            )
        )
    return output


def _combine(
    first: Mapping[Uuid, TopicParts], second: Mapping[Uuid, TopicParts]
) -> dict[Uuid, TopicParts]:
    combined = dict(first)
    for topic_id, one in second.items():
        before = combined.get(topic_id)
        partitions = one.partitions if before is None else before.partitions | one.partitions
        combined[topic_id] = TopicParts(one.name, partitions, one.timestamp_ms)
    return combined


def _without(
    first: Mapping[Uuid, TopicParts], second: Mapping[Uuid, TopicParts]
) -> dict[Uuid, TopicParts]:
    remaining = {}
    for topic_id, one in first.items():
        partitions = one.partitions
        if topic_id in second:
            partitions -= second[topic_id].partitions
        if partitions:
            remaining[topic_id] = TopicParts(one.name, partitions, one.timestamp_ms)
    return remaining


def _named(groups: ShareGroups, topic_ids: Iterable[Uuid]) -> dict[Uuid, str]:
    return {
        topic_id: groups.topics.topic_name(topic_id) or _UNKNOWN_NAME
        for topic_id in sorted(topic_ids)
    }
