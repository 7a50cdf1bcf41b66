"""Bytes that brokers copied from each other, since the start.

Kafka: BrokerTopicMetrics {Replication,Reassignment}Bytes{In,Out}PerSec.
"""

from __future__ import annotations


class ReplicationTraffic:
    """Bytes fetched as a follower and sent as a leader, and the share of replicas being moved."""

    __slots__ = ("bytes_in", "bytes_out", "moved_bytes_in", "moved_bytes_out")

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = 0
        self.moved_bytes_in = self.moved_bytes_out = 0
        """Of replicas that a reassignment adds."""
