"""Truncations of partitions: no replica cuts off what it has and what is committed.

A follower that does so may be elected before it has fetched that again (KIP-101). What was cut is
forgotten of producers too: a leader would take what they repeat for duplicates of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clusters.committed_logs import Replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_set.log_set import LogSet
    from tests.simulation.clusters.committed_logs import CommittedLog


class Cuts:
    """Takes note of truncations when they begin, and checks them when the turn is over."""

    def __init__(self, find: Callable[[PartitionLog], CommittedLog | None]) -> None:
        """find(log) returns what is committed of a partition, None for an unknown one."""
        self._find = find
        self._begun: list[tuple[str, PartitionLog, int]] = []

    def watch(self, owner: str, logs: LogSet) -> None:
        """Look at the truncations of a process, which has loaded no logs yet."""
        before = logs.events.recovery_point_lowered

        def begins(log: PartitionLog) -> None:
            committed = self._find(log)
            if committed is not None:
                # an empty log holds nothing: it begins again where its first whole batch begins
                is_empty = log.log_end_offset == log.log_start_offset
                held = 0 if is_empty else committed.shared_end(Replica(owner, log))
                self._begun.append((owner, log, held))
            before(log)

        logs.events = logs.events._replace(recovery_point_lowered=begins)

    def check(self) -> None:
        """Check what was cut in this turn."""
        begun, self._begun = self._begun, []
        for owner, log, held in begun:
            assert log.log_end_offset >= held, (
                f"{owner} cuts {log.topic_partition} at {log.log_end_offset}; it had all that is "
                f"committed up to {held}"
            )
            for entry in log.producer_state.producers.values():
                assert not entry.batches or entry.batches[-1].last_offset < log.log_end_offset, (
                    f"{owner} has cut {log.topic_partition} at {log.log_end_offset}; it knows "
                    f"{entry.batches[-1]} of producer {entry.producer_id}"
                )
