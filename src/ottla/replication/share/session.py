"""Share sessions: the partitions that a member fetches, with an epoch for each request.

A member has one session at a broker; it ends with the member's last epoch, its connection, or a new
session of the member.

Kafka: org.apache.kafka.server.share.session.{ShareSession, ShareSessionCache},
SharePartitionManager.{newContext, acknowledgeSessionUpdate}.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.metrics.ledger import Ledger
    from ottla.types import Uuid

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
MAX_PARTITIONS: Final = 200_000
"""Of all sessions of a broker; a partition need not exist to be in one."""
_PARTITION_BYTES: Final = 350


class TopicIdPartition(NamedTuple):
    """A partition by topic id."""

    topic_id: Uuid
    partition: int


class MemberKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions, each with whether the next response has to name it."""

    key: MemberKey
    connection: object
    epoch: int = 1
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Apply the changes of a request."""
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def must_respond(self, one: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether a response has to name a partition; the next one does so after an error."""
        is_due = has_records or has_error or self.partitions.get(one, False)
        if one in self.partitions:
            self.partitions[one] = has_error
        return is_due

    def raise_epoch(self) -> None:
        """Expect the next request."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1


class ShareSessionCache:
    """The sessions of a broker, at most max_count, with MAX_PARTITIONS in all."""

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._group_counts: Counter[str] = Counter()
        self.partition_count = 0
        """Partitions in all sessions."""
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        bound_bytes = MAX_PARTITIONS * _PARTITION_BYTES
        ledger.register("share_sessions", bound_bytes, self._measure)

    def _measure(self) -> tuple[int, int]:
        return len(self), self.partition_count * _PARTITION_BYTES

    def find(self, key: MemberKey) -> ShareSession | None:
        """Return a member's session."""
        return self._sessions.get(key)

    def begin(
        self, key: MemberKey, partitions: Iterable[TopicIdPartition], connection: object
    ) -> ShareSession:
        """Begin a session in place of an earlier one.

        SHARE_SESSION_LIMIT_REACHED for too many; an earlier one is left then, so that no session
        ends without a release of its records.
        """
        session, before = ShareSession(key, connection), self._sessions.get(key)
        session.partitions.update(dict.fromkeys(partitions, False))
        others = len(self._sessions) - (before is not None)
        count = self.partition_count + len(session.partitions)
        count -= 0 if before is None else len(before.partitions)
        if others >= self._max_count or count > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self.remove(key)
        self.partition_count = count
        self._sessions[key] = session
        self._group_counts[key.group_id] += 1
        return session

    def update(
        self,
        session: ShareSession,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> None:
        """Apply the changes of a request.

        SHARE_SESSION_NOT_FOUND for one that exceeds MAX_PARTITIONS in all: the caller ends it.
        """
        before = len(session.partitions)
        session.update(added, forgotten)
        self.partition_count += len(session.partitions) - before
        if self.partition_count > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)

    def is_current(self, session: ShareSession) -> bool:
        """Whether a session has not ended, and its member has not begun another one."""
        return self._sessions.get(session.key) is session

    def has_group(self, group_id: str) -> bool:
        """Whether a member of a group has a session."""
        return group_id in self._group_counts

    def expect(self, key: MemberKey, epoch: int) -> ShareSession:
        """Return the session of a request with this epoch, and expect the next one.

        The final epoch is accepted for every session, and does not end it yet.
        """
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.raise_epoch()
        return session

    def remove(self, key: MemberKey) -> ShareSession | None:
        """End a member's session."""
        found = self._sessions.pop(key, None)
        if found is not None:
            self.partition_count -= len(found.partitions)
            self._group_counts[key.group_id] -= 1
            if not self._group_counts[key.group_id]:
                del self._group_counts[key.group_id]
        return found

    def of_connection(self, connection: object) -> list[ShareSession]:
        """Return the sessions of a connection that is closed."""
        return [session for session in self._sessions.values() if session.connection is connection]

    def clear(self) -> None:
        """End all sessions: share groups are disabled."""
        self.partition_count = 0
        self._sessions.clear()
        self._group_counts.clear()
