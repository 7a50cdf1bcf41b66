"""What the leader of a partition knows about one follower, from its fetches.

Kafka: kafka.cluster.Replica, org.apache.kafka.server.replica.ReplicaState.
"""

from __future__ import annotations

from typing import Final

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
