"""What leaders of share partitions give and take: no record twice while locked, none after its end.

What a leader reports as accepted or rejected is in a state that a share coordinator has stored.

What is accepted or rejected in an epoch is delivered in no later one: a leader that does not know
that it was replaced may still deliver it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.replication.share import acknowledging, acquiring
from ottla.replication.share.partition import SharePartition
from ottla.server.share import delayed_fetch
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.purgatory.pending import Pending
    from ottla.replication.share.acknowledging import Acknowledgement
    from ottla.replication.share.acquiring import Acquired
    from ottla.replication.share.partition import PersistedBatch

    Place = tuple[bytes, int, int]

LIMIT = 5
"""group.share.delivery.count.limit"""


class _Lock:
    """Who holds a record, and until when."""

    def __init__(self, member_id: str, deadline_ms: int) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms


class ShareChecks:
    """Follows locks and ends of records from what passes the leaders."""

    def __init__(self) -> None:
        self.ended: dict[Place, int] = {}
        """The epoch in which a record was accepted or rejected."""
        self.unanswered: set[Place] = set()
        """Records that were accepted or rejected, with an error or before the leader was lost."""
        self.exhausted: set[Place] = set()
        """Records that were delivered as often as they may be."""
        self.deliveries = 0
        self.violations: list[str] = []
        self._persisted: set[Place] = set()
        """Records whose end a share coordinator has stored."""
        self._locks: dict[int, dict[int, _Lock]] = {}
        self._known: list[SharePartition] = []
        """Keeps partitions alive: their ids are keys."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at all nodes while the context lasts."""
        acquire, acknowledge = acquiring.acquire, acknowledging.acknowledge
        release, persist = acknowledging.release_member, SharePartition.persist

        def acquired(partition: SharePartition, request: Any, *rest: Any) -> list[Acquired]:
            found = acquire(partition, request, *rest)
            for one in found:
                for offset in range(one.first_offset, one.last_offset + 1):
                    self._delivered(partition, request.member_id, offset, one.delivery_count)
            return found

        def acknowledged(
            partition: SharePartition, member_id: str, batches: list[Acknowledgement]
        ) -> Pending[None]:
            self.unanswered.update(_ended_by(partition, batches))
            done = acknowledge(partition, member_id, batches)
            done.on_done(lambda result: self._acknowledged(partition, batches, result.error))
            return done

        def released(partition: SharePartition, member_id: str) -> Pending[None]:
            locks = self._locks_of(partition)
            for offset in [one for one, lock in locks.items() if lock.member_id == member_id]:
                del locks[offset]
            return release(partition, member_id)

        def persisted(
            partition: SharePartition, changes: Sequence[PersistedBatch]
        ) -> Pending[None]:
            ended = [
                _place(partition, offset)
                for one in changes
                if one.state.is_terminal
                for offset in range(one.first_offset, one.last_offset + 1)
            ]

            def stored(done: Pending[None]) -> None:
                if done.error is None:
                    self._persisted.update(ended)

            answer = persist(partition, changes)
            answer.on_done(stored)
            return answer

        with (
            patch.object(SharePartition, "persist", persisted),
            patch.object(delayed_fetch, "acquire", acquired),
            patch.object(acknowledging, "acknowledge", acknowledged),
            patch.object(acknowledging, "release_member", released),
        ):
            yield

    def _locks_of(self, partition: SharePartition) -> dict[int, _Lock]:
        if id(partition) not in self._locks:
            self._known.append(partition)
        return self._locks.setdefault(id(partition), {})

    def _delivered(
        self, partition: SharePartition, member_id: str, offset: int, count: int
    ) -> None:
        self.deliveries += 1
        place = _place(partition, offset)
        now_ms = partition.environment.clock.monotonic_ms()
        locks = self._locks_of(partition)
        lock = locks.get(offset)
        if lock is not None and now_ms < lock.deadline_ms:
            self.violations.append(
                f"{partition.key} gives {offset} to {member_id}; {lock.member_id} holds it"
            )
        ended = self.ended.get(place)
        if ended is not None and partition.leader_epoch >= ended:
            self.violations.append(
                f"{partition.key} gives {offset} in epoch {partition.leader_epoch}; it ended in "
                f"{ended}"
            )
        if count > LIMIT:
            self.violations.append(f"{partition.key} gives {offset} for the {count}th time")
        if count >= LIMIT:
            self.exhausted.add(place)
        duration_ms = partition.settings.record_lock_duration_ms
        locks[offset] = _Lock(member_id, now_ms + duration_ms)

    def _acknowledged(
        self, partition: SharePartition, batches: list[Acknowledgement], error: Exception | None
    ) -> None:
        if error is not None:
            return
        locks = self._locks_of(partition)
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                locks.pop(offset, None)
        for place in _ended_by(partition, batches):
            self.ended[place] = partition.leader_epoch
            if place not in self._persisted:
                self.violations.append(
                    f"{partition.key} reports the end of {place[2]}, which is not stored"
                )

    def has_ended(self, place: Place) -> bool:
        """Whether a record is delivered no more.

        What a lost leader has persisted ends a record although no answer said so: a later leader
        begins after it.
        """
        if place in self.ended or place in self.exhausted:
            return True
        *partition, offset = place
        return place in self.unanswered and any(
            [bytes(one.key.topic_id), one.key.partition] == partition and one.start_offset > offset
            for one in self._known
        )

    def check(self) -> None:
        """Check what has passed since the last time."""
        assert not self.violations, self.violations[0]


def _ended_by(partition: SharePartition, batches: list[Acknowledgement]) -> list[Place]:
    """Return the records that are accepted or rejected."""
    return [
        _place(partition, offset)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
        if batch.type_at(offset) is not AcknowledgeType.RELEASE
    ]


def _place(partition: SharePartition, offset: int) -> Place:
    return bytes(partition.key.topic_id), partition.key.partition, offset
