"""Markers of transactions: written only after the decision is committed; and live states.

A handler that raises would answer with an error, so what was written is kept for `check`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.coordinator.runtime.active import ShardState
from ottla.server.broker.topic_auto_creation import TRANSACTION_STATE_TOPIC
from ottla.server.broker.transaction_markers import MarkerWriter
from tests.simulation.clusters.transaction_log import CommittedTransactions, replayed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.coordinator.runtime import EndTransaction
    from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
    from ottla.server.node.node import Node
    from ottla.types import TopicPartition
    from tests.simulation.clusters.committed_logs import CommittedLog


class Markers:
    """Looks at what transaction coordinators have markers written for."""

    def __init__(self, logs: Mapping[tuple[bytes, int], CommittedLog]) -> None:
        self.count = 0
        self._logs = logs
        self._written: list[tuple[int, int, bool]] = []
        """The producer id, epoch and decision of each."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the markers that all nodes are asked to write while the context lasts.

        Those that a coordinator writes itself take no request.
        """
        write, write_own = MarkerWriter.write, MarkerWriter.write_own

        def noted(writer: MarkerWriter, request: WriteTxnMarkersRequest) -> Any:
            self._written.extend(
                (one.producer_id, one.producer_epoch, one.transaction_result)
                for one in request.markers
            )
            return write(writer, request)

        def noted_own(
            writer: MarkerWriter, end: EndTransaction, partitions: list[TopicPartition]
        ) -> list[TopicPartition]:
            rest = write_own(writer, end, partitions)
            if len(rest) < len(partitions):
                self._written.append((end.producer_id, end.producer_epoch, end.committed))
            return rest

        with (
            patch.object(MarkerWriter, "write", noted),
            patch.object(MarkerWriter, "write_own", noted_own),
        ):
            yield

    def check(self) -> None:
        """Check that each marker since the last time follows from a decision that is committed."""
        if not self._written:
            return
        written, self._written = self._written, []
        self.count += len(written)
        decisions = set[tuple[int, int, bool]]().union(
            *(
                log.decisions
                for log in self._logs.values()
                if isinstance(log, CommittedTransactions)
            )
        )
        for marker in written:
            assert marker in decisions, (
                f"a marker is written before its decision is committed: {marker}"
            )


def compare_live(nodes: Iterable[Node]) -> int:
    """Check that each coordinator has in memory what its log says; return how many states."""
    count = 0
    for node in nodes:
        runtime = node.broker.transactions.runtime
        for number, state in runtime.partitions.items():
            partition = node.broker.replicas.find(TRANSACTION_STATE_TOPIC, number)
            if state is not ShardState.ACTIVE or partition is None or not partition.is_leader:
                continue
            if partition.leader_epoch != runtime.leader_epoch(number):
                continue
            live = {
                name: transaction._replace(last_epoch=-1)
                for name, transaction in runtime.shard(number).transactions.items()
            }
            stored = replayed(partition.log)
            assert live == stored, (
                f"the coordinator of {partition.topic_partition} on node {node.config.node_id} has "
                f"{live}; its log says {stored}"
            )
            count += len(live)
    return count
