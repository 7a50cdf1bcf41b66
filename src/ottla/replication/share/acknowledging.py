"""Acknowledgements: accept, release, reject and renew; the end of sessions and of locks.

Kafka: SharePartition.{acknowledge, releaseAcquiredRecords, releaseAcquisitionLockOnTimeout}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.share.partition import PersistedBatch
from ottla.replication.share.states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NO_MEMBER,
    InFlightBatch,
    RecordState,
)
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.purgatory.pending import Pending
    from ottla.replication.share.partition import SharePartition

_STATES: Final = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}
_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
_CHANGING = "The record state is invalid. The acknowledgement of delivery could not be completed."
_NO_RENEW = "Renewing acquisition locks is not enabled for the group."


class Acknowledgement(NamedTuple):
    """Offsets with one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_at(self, offset: int) -> AcknowledgeType:
        """Return the type of an offset."""
        index = 0 if len(self.types) == 1 else offset - self.first_offset
        return AcknowledgeType(self.types[index])


def acknowledge(
    partition: SharePartition, member_id: str, batches: Sequence[Acknowledgement]
) -> Pending[None]:
    """Apply a member's acknowledgements together; all are undone where one is wrong."""
    changes: list[PersistedBatch] = []
    error: KafkaError | None = None
    try:
        for batch in batches:
            if batch.last_offset >= partition.start_offset:  # else archived already
                _acknowledge(partition, member_id, batch, changes)
    except KafkaError as problem:
        error = problem
    return partition.finish_changes(changes, error)


def _acknowledge(
    partition: SharePartition,
    member_id: str,
    acknowledged: Acknowledgement,
    changes: list[PersistedBatch],
) -> None:
    for batch in _batches_of(partition, acknowledged):
        whole = batch.whole
        if whole is not None:
            if whole.member_id == NO_MEMBER:
                raise _invalid(_NOT_ACQUIRED)
            if whole.member_id != member_id:
                raise _invalid("Member is not the owner of batch record")
            if whole.is_changing:
                raise _invalid(_CHANGING)
            if whole.state is not ACQUIRED:
                raise _invalid(_NOT_ACQUIRED)
            is_complete = (
                batch.is_within(acknowledged.first_offset, acknowledged.last_offset)
                and len(acknowledged.types) == 1
            )
            if is_complete:
                kind = acknowledged.type_at(batch.first_offset)
                change = PersistedBatch(batch.first_offset, batch.last_offset, whole)
                _apply(partition, change, kind, changes)
                continue
            partition.split(batch)
        _acknowledge_offsets(partition, member_id, acknowledged, batch, changes)


def _acknowledge_offsets(
    partition: SharePartition,
    member_id: str,
    acknowledged: Acknowledgement,
    batch: InFlightBatch,
    changes: list[PersistedBatch],
) -> None:
    for offset, state in batch.offsets.items():
        if offset > acknowledged.last_offset:
            break
        if offset < acknowledged.first_offset:
            continue
        if state.state is not ACQUIRED:
            raise _invalid("The offset cannot be acknowledged. The offset is not acquired.")
        if state.is_changing:
            raise _invalid(_CHANGING)
        if state.member_id != member_id:
            raise _invalid("Member is not the owner of offset")
        change = PersistedBatch(offset, offset, state)
        _apply(partition, change, acknowledged.type_at(offset), changes)


def _batches_of(partition: SharePartition, acknowledged: Acknowledgement) -> list[InFlightBatch]:
    """Return the batches in flight with acknowledged offsets."""
    first_offset = max(acknowledged.first_offset, partition.start_offset)
    last_offset = acknowledged.last_offset
    floor = partition.batches.floor(first_offset)
    if floor is None:
        text = "Batch record not found. The request batch offsets are not found in the cache."
        raise _invalid(text)
    found = partition.batches.overlapping(first_offset, last_offset)
    end = found[-1].last_offset if found else floor.last_offset
    for offset, name in ((first_offset, "first"), (last_offset, "last")):
        if end < offset:
            text = f"Batch record not found. The {name} offset in request is past acquired records."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return found


def _apply(
    partition: SharePartition,
    change: PersistedBatch,
    kind: AcknowledgeType,
    changes: list[PersistedBatch],
) -> None:
    state = change.state
    if kind is AcknowledgeType.RENEW:
        if not partition.settings.is_renew_enabled:
            raise _invalid(_NO_RENEW)
        state.cancel_lock()
        state.lock = partition.lock(change.first_offset, change.last_offset)
        return
    if not state.begin_release(_STATES[kind], partition.settings.delivery_count_limit):
        raise _invalid("Unable to acknowledge records for the batch")
    changes.append(change)
    if state.is_terminal:
        count = change.last_offset - change.first_offset + 1
        partition.delivery_complete_count += count


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, text)


def release_member(partition: SharePartition, member_id: str) -> Pending[None]:
    """Release all that a member has acquired: its session has ended."""
    changes: list[PersistedBatch] = []
    limit = partition.settings.delivery_count_limit
    for batch in partition.batches:
        for first, last, state in batch.states():
            if state.member_id != member_id or state.state is not ACQUIRED:
                continue
            if state.begin_release(AVAILABLE, limit):
                changes.append(PersistedBatch(first, last, state))
                if state.is_terminal:
                    partition.delivery_complete_count += partition.count_in(first, last)
    return partition.finish_changes(changes, None)


def expire_lock(partition: SharePartition, first_offset: int, last_offset: int) -> None:
    """Release records whose lock has expired, except those that are being acknowledged.

    The locks of single offsets of a batch expire together: all that are due are released, and
    persisted, at once.
    """
    changes: list[PersistedBatch] = []
    limit, now_ms = partition.settings.delivery_count_limit, partition.now_ms
    for batch in partition.batches.overlapping(first_offset, last_offset):
        for first, last, state in batch.states():
            if state.lock is None or not state.lock.has_expired(now_ms):
                continue
            if state.release(AVAILABLE, limit):
                state.cancel_lock()
                partition.lock_timeout_count += last - first + 1
                changes.append(PersistedBatch(first, last, state))
                if state.is_terminal:
                    partition.delivery_complete_count += partition.count_in(first, last)
                else:
                    partition.may_find_available = True
    if changes:
        partition.persist(changes)
        partition.settle()
        partition.environment.on_available(partition.key)
