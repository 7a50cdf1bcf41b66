"""What a leader with followers decides: the high watermark, the in-sync set, acknowledgements.

The controller decides about the in-sync set (ISR); the leader proposes changes, one at a time, and
until the controller has answered it must be ready for either outcome. So the high watermark waits
for the *maximal* ISR: the committed one and the replicas proposed to join. A replica proposed to
leave counts until the controller has committed that. A caught-up replica that may join holds the
high watermark back as well, as in Kafka: under constant load it could not join otherwise.

Hot path: `LeaderState.appended` and `fetched`. benchmarks/against_kafka.
Kafka: kafka.cluster.{Partition, PartitionState, Replica} (KIP-497, KIP-841, KIP-903, KIP-966),
kafka.server.DelayedProduce, org.apache.kafka.server.replica.ReplicaState.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.types import TopicPartition, Uuid

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1


class FollowerState:
    """Offsets and times of one follower in one leader epoch; times are monotonic."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "is_in_maximal_isr",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        """The incarnation that fetched last (KIP-903)."""
        self.is_in_maximal_isr = False
        self.reset(0)

    def reset(self, caught_up_ms: int) -> None:
        """Forget the offsets: in a new leader epoch the follower may have truncated its log."""
        self.log_start_offset = self.log_end_offset = UNKNOWN_OFFSET
        self.leader_end_offset = UNKNOWN_OFFSET
        """The leader's log end offset when the follower fetched last."""
        self.last_fetch_ms = 0
        self.last_caught_up_ms = caught_up_ms
        """When the follower was last at the leader's log end."""

    def fetched(
        self,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """Record a fetch.

        A follower that fetches from the log end of its previous fetch was caught up at that time:
        under constant load it never reaches the current end.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_offset > UNKNOWN_OFFSET:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it is at the leader's log end, or was within the last max_lag_ms."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )


class ReplicationWait(Protocol):
    """One waiting request, with the partitions whose acknowledgements it needs."""

    @property
    def is_over(self) -> bool:
        """Whether the request is complete."""

    def acknowledged(self, position: int, code: ErrorCode) -> None:
        """Take the result for the partition at this position of the request."""


_Entry = tuple[int, int, ReplicationWait, int]
"""Required offset, a sequence number for equal offsets, the waiter, and its position."""


class AcknowledgementQueue:
    """A queue ordered by offset; of equal offsets the older one comes first."""

    __slots__ = ("_count", "_entries", "completed_together")

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._count = 0
        self.completed_together = 0
        """Appends that the last advance of the high watermark has acknowledged."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, required_offset: int, wait: ReplicationWait, position: int) -> None:
        """Wait until everything below an offset is replicated."""
        entries = self._entries
        self._count += 1
        entry = (required_offset, self._count, wait, position)
        if entries and entries[-1][0] > required_offset:  # a repeated batch
            insort(entries, entry)
        else:
            entries.append(entry)

    def complete(self, high_watermark: int, code: ErrorCode) -> None:
        """Acknowledge the appends below the high watermark."""
        entries = self._entries
        waiting = len(entries)
        while entries and entries[0][0] <= high_watermark:
            _, _, wait, position = entries.popleft()
            wait.acknowledged(position, code)
        self.completed_together = waiting - len(entries)

    def fail(self, code: ErrorCode) -> None:
        """End all waits: the partition is no longer led here in the epoch of the append."""
        entries, self._entries = self._entries, deque()
        for _, _, wait, position in entries:
            wait.acknowledged(position, code)

    def forget_expired(self) -> None:
        """Drop the oldest entries whose requests are answered."""
        entries = self._entries
        while entries and entries[0][2].is_over:
            entries.popleft()


log = logging.getLogger("ottla.replication")
_REVERTED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
_KEPT: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


class ProposedIsr(NamedTuple):
    """A change of the in-sync set that the controller has not answered."""

    members: tuple[tuple[int, int], ...]
    """Broker id and broker epoch of each; -1 where the leader knows no epoch."""
    leader_epoch: int
    partition_epoch: int
    is_expansion: bool

    @property
    def ids(self) -> tuple[int, ...]:
        """The brokers in it."""
        return tuple(broker_id for broker_id, _ in self.members)


class CommittedIsr(NamedTuple):
    """What the controller answered to a proposal."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class LedPartition(Protocol):
    """What the leader state uses of its partition."""

    topic_partition: TopicPartition
    topic_id: Uuid
    log: PartitionLog
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    min_insync_replicas: int

    def changed(self) -> None:
        """Notify fetch sessions of a change."""

    @property
    def effective_min_isr(self) -> int:
        """In-sync replicas that acks=all requires."""

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync."""


class LeaderEnvironment(Protocol):
    """What leaders know about their broker and the others."""

    node_id: int
    max_lag_ms: int

    @property
    def broker_epoch(self) -> int:
        """This broker's epoch."""

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker is neither fenced nor shutting down, and of this incarnation.

        -1 stands for a follower that does not report its epoch.
        """

    def is_unfenced(self, broker_id: int) -> bool:
        """Whether a broker is not fenced; it may be shutting down."""

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation of the broker is known."""

    def propose(self, leading: LeaderState, proposal: ProposedIsr) -> None:
        """Send a proposal to the controller; `LeaderState.answered` or `refused` follows."""

    def high_watermark_moved(self, partition: Any, /) -> None:
        """Wake waiting fetches of committed records of a partition."""


class LeaderState:
    """The followers of one partition, as long as it is led here and has other replicas."""

    __slots__ = (
        "_environment",
        "_now_ms",
        "acknowledgements",
        "deletions",
        "epoch_start_offset",
        "followers",
        "partition",
        "proposal",
    )

    def __init__(self, partition: LedPartition, environment: LeaderEnvironment) -> None:
        self.partition = partition
        self._environment = environment
        self._now_ms = 0
        """The time of the last fetch or check; appends do not look at the clock."""
        self.epoch_start_offset = partition.log.log_end_offset
        self.followers: dict[int, FollowerState] = {}
        self.acknowledgements = AcknowledgementQueue()
        self.deletions = AcknowledgementQueue()
        """DeleteRecords that wait for the low watermark."""
        self.proposal: ProposedIsr | None = None

    def assigned(self, now_ms: int) -> None:
        """Adopt the partition's replicas and committed in-sync set; an open proposal is dropped.

        Offsets of known followers stay: the leader epoch is the same.
        """
        self._now_ms = max(self._now_ms, now_ms)
        partition, before = self.partition, self.followers
        self.followers = {}
        for replica in partition.replicas:
            if replica == self._environment.node_id:
                continue
            follower = before.get(replica)
            if follower is None:
                follower = FollowerState(replica)
                follower.reset(now_ms if replica in partition.isr else 0)
            self.followers[replica] = follower
        self._commit()
        self._advance()
        if self.deletions:
            self.deletions.complete(self.low_watermark, ErrorCode.NONE)

    def _commit(self) -> None:
        """Adopt the in-sync set that the controller has committed."""
        self.partition.changed()
        self.proposal = None
        for follower in self.followers.values():
            follower.is_in_maximal_isr = follower.broker_id in self.partition.isr

    # The high watermark

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed in-sync set with the replicas proposed to join it."""
        proposal = self.proposal
        if proposal is not None and proposal.is_expansion:
            return proposal.ids
        return self.partition.isr

    def appended(self) -> None:
        """Commit at once where the leader alone is in sync; else the followers' fetches commit."""
        if len(self.partition.isr) <= 1:
            self._advance()

    def _advance(self) -> bool:
        """Raise the high watermark to the lowest log end of the maximal ISR; whether it moved.

        Not while there are fewer in-sync replicas than min.insync.replicas (KIP-966).
        """
        partition = self.partition
        log_of = partition.log
        if len(partition.isr) < partition.min_insync_replicas and partition.is_under_min_isr:
            return False
        offset = log_of.log_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < offset and (
                follower.is_in_maximal_isr or self._is_joining(follower)
            ):
                offset = follower.log_end_offset
        if offset <= log_of.high_watermark:
            return False
        log_of.update_high_watermark(offset)
        if self.acknowledgements:
            self.acknowledgements.complete(offset, self._code())
        self._environment.high_watermark_moved(partition)
        return True

    def _is_joining(self, follower: FollowerState) -> bool:
        environment = self._environment
        end_offset = self.partition.log.log_end_offset
        return follower.is_caught_up(
            end_offset, self._now_ms, environment.max_lag_ms
        ) and environment.may_join(follower.broker_id, follower.broker_epoch)

    def _code(self) -> ErrorCode:
        """Return the code for producers whose records are committed now."""
        is_enough = len(self.maximal_isr) >= self.partition.effective_min_isr
        return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def low_watermark(self) -> int:
        """The lowest start of this log and of those of the followers that are alive (KIP-107)."""
        low = self.partition.log.log_start_offset
        for follower in self.followers.values():
            if self._environment.is_unfenced(follower.broker_id):
                low = min(low, follower.log_start_offset)
        return low

    def acknowledge(self, required_offset: int, wait: ReplicationWait, position: int) -> None:
        """Acknowledge an append when all below an offset is committed: now, or later."""
        if not self.followers:
            wait.acknowledged(position, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.partition.log.high_watermark >= required_offset:
            wait.acknowledged(position, self._code())
        else:
            self.acknowledgements.add(required_offset, wait, position)

    # Followers

    def check_follower(
        self, broker_id: int, broker_epoch: int, *, knows_epoch: bool
    ) -> FollowerState:
        """Return the follower that fetches; KafkaError for others and former incarnations."""
        follower = self.followers.get(broker_id)
        if follower is None:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
            raise KafkaError(code if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if broker_epoch != NO_BROKER_EPOCH and (
            broker_epoch < follower.broker_epoch
            or self._environment.is_stale(broker_id, broker_epoch)
        ):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Received stale fetch state update. broker epoch={broker_epoch} vs "
                f"expected={follower.broker_epoch}",
            )
        return follower

    def fetched(
        self,
        follower: FollowerState,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """Record a follower's position; it may join the in-sync set, and records may commit."""
        log_of = self.partition.log
        before = follower.log_end_offset
        self._now_ms = max(self._now_ms, now_ms)
        follower.fetched(
            fetch_offset, log_start_offset, log_of.log_end_offset, now_ms, broker_epoch
        )
        if self.deletions:
            self.deletions.complete(self.low_watermark, ErrorCode.NONE)
        if not follower.is_in_maximal_isr and self._may_expand_by(follower):
            follower.is_in_maximal_isr = True
            self._propose((*self.partition.isr, follower.broker_id), is_expansion=True)
        if fetch_offset != before and log_of.high_watermark < log_of.log_end_offset:
            self._advance()

    def stayed(
        self,
        broker_id: int,
        broker_epoch: int,
        log_end_offset: int,
        log_start_offset: int,
        now_ms: int,
    ) -> bool:
        """Record a fetch of an in-sync follower at its last position; False if it is another."""
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or not follower.is_in_maximal_isr
            or follower.broker_epoch != broker_epoch
            or follower.log_end_offset != log_end_offset
            or follower.log_start_offset != log_start_offset
            or self._environment.is_stale(broker_id, broker_epoch)
        ):
            return False
        follower.last_caught_up_ms = follower.last_fetch_ms = now_ms
        follower.leader_end_offset = log_end_offset
        return True

    def was_caught_up(self, broker_id: int, broker_epoch: int, fetch_ms: int) -> None:
        """Record that a follower's last fetch, at fetch_ms, was at the log end."""
        follower = self.followers.get(broker_id)
        if follower is not None and follower.broker_epoch == broker_epoch:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, fetch_ms)
            follower.last_fetch_ms = max(follower.last_fetch_ms, fetch_ms)

    def _may_expand_by(self, follower: FollowerState) -> bool:
        return (
            self.proposal is None
            and follower.log_end_offset >= self.partition.log.high_watermark
            and follower.log_end_offset >= self.epoch_start_offset
            and self._environment.may_join(follower.broker_id, follower.broker_epoch)
        )

    def check_lag(self, now_ms: int) -> None:
        """Propose the in-sync set without the replicas that lag beyond max_lag_ms."""
        self._now_ms = max(self._now_ms, now_ms)
        partition, environment = self.partition, self._environment
        if self.proposal is None:
            end_offset = partition.log.log_end_offset
            staying = tuple(
                replica
                for replica in partition.isr
                if replica == environment.node_id
                or (
                    replica in self.followers
                    and self.followers[replica].is_caught_up(
                        end_offset, now_ms, environment.max_lag_ms
                    )
                )
            )
            if len(staying) < len(partition.isr):
                self._propose(staying, is_expansion=False)
        self._advance()

    # The controller

    def _propose(self, isr: Sequence[int], *, is_expansion: bool) -> None:
        partition, environment = self.partition, self._environment
        members = tuple((replica, self._epoch_of(replica)) for replica in isr)
        self.proposal = ProposedIsr(
            members, partition.leader_epoch, partition.partition_epoch, is_expansion
        )
        log.info(
            "%s of the ISR of %s from %s to %s is proposed; high watermark %d, end %d",
            "expansion" if is_expansion else "shrink",
            partition.topic_partition,
            list(partition.isr),
            list(isr),
            partition.log.high_watermark,
            partition.log.log_end_offset,
            extra={"event": "isr.proposed", "partition": str(partition.topic_partition)},
        )
        environment.propose(self, self.proposal)

    def _epoch_of(self, replica: int) -> int:
        if replica == self._environment.node_id:
            return self._environment.broker_epoch
        follower = self.followers.get(replica)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def answered(self, proposal: ProposedIsr, committed: CommittedIsr) -> None:
        """Adopt the controller's decision, unless newer metadata has arrived before."""
        partition = self.partition
        if proposal is not self.proposal:
            return
        if (
            committed.leader_epoch != partition.leader_epoch
            or committed.partition_epoch < partition.partition_epoch
        ):
            return  # the metadata that follows decides
        partition.isr, partition.partition_epoch = committed.isr, committed.partition_epoch
        self._commit()
        self._advance()

    def refused(self, proposal: ProposedIsr, code: ErrorCode) -> None:
        """Handle an error: forget the proposal, wait for the metadata, or propose it again.

        Only an error in _REVERTED rules out that the proposal was or will be committed.
        """
        if proposal is not self.proposal:
            return
        if code in _REVERTED:
            self._commit()
        elif code not in _KEPT:
            self._environment.propose(self, proposal)

    def end(self, code: ErrorCode) -> None:
        """Stop leading in this epoch: waiting requests are answered."""
        self.proposal = None
        self.followers = {}
        self.acknowledgements.fail(code)
        self.deletions.fail(code)
