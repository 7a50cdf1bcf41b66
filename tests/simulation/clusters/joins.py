"""Who joins the in-sync set: a replica that has all that is committed, proposed by its leader.

A leader that proposes a replica knows that it holds what this leader and those of earlier epochs
have committed. In the metadata nothing else brings a replica into the ISR, but for an election of
one that was eligible (KIP-966), which leads from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.metadata.partition import PartitionRegistration
    from ottla.replication.leader_state import LeaderState, ProposedIsr
    from ottla.server.node.node import Node
    from tests.simulation.clusters.committed_logs import CommittedLog


class Joins:
    """Takes note of what leaders propose and the controller accepts.

    What does not hold is kept for `check`: an exception would be the node's own.
    """

    def __init__(self, logs: dict[tuple[bytes, int], CommittedLog]) -> None:
        """Take what is committed, by topic id and partition."""
        self._logs = logs
        self._accepted: dict[tuple[bytes, int], dict[int, tuple[int, ...]]] = {}
        """By topic id and partition: partition epoch → the members that its leader named."""
        self._violations: list[str] = []

    def watch(self, node: Node) -> None:
        """Look at what the leaders of a process propose."""
        environment = node.broker.replicas.environment
        assert environment is not None
        propose = environment.propose

        def checked(leading: LeaderState, proposal: ProposedIsr) -> None:
            if proposal.is_expansion:
                self._proposed(leading, proposal)
            propose(leading, proposal)

        environment.propose = checked  # type: ignore[method-assign] # of this process alone

    def _proposed(self, leading: LeaderState, proposal: ProposedIsr) -> None:
        partition = leading.partition
        committed = self._logs.get((partition.topic_id, partition.topic_partition.partition))
        if committed is None:
            return
        needed = committed.end_of_epochs(proposal.leader_epoch)
        for broker_id, broker_epoch in proposal.members:
            follower = leading.followers.get(broker_id)
            if broker_id in partition.isr or follower is None:
                continue
            if follower.broker_epoch == broker_epoch and follower.log_end_offset < needed:
                self._violations.append(
                    f"the leader of {committed.name} in epoch {proposal.leader_epoch} lets "
                    f"{broker_id} join, which ends at {follower.log_end_offset}; {needed} is "
                    "committed"
                )

    def accepted(
        self, topic_id: bytes, index: int, partition_epoch: int, members: tuple[int, ...]
    ) -> None:
        """Take note of a change that some controller accepts; it may never be committed."""
        known = self._accepted.setdefault((topic_id, index), {})
        known[partition_epoch] = (*known.get(partition_epoch, ()), *members)

    def changed(
        self, key: tuple[bytes, int], before: PartitionRegistration, found: PartitionRegistration
    ) -> None:
        """Look at a partition in the newest metadata and as the node knew it before."""
        entered = set(found.isr).difference(before.isr)
        if not entered:
            return
        if found.leader_epoch != before.leader_epoch:
            entered.discard(found.leader)
        for epoch, members in self._accepted.get(key, {}).items():
            if before.partition_epoch <= epoch < found.partition_epoch:
                entered.difference_update(members)
        if entered:
            self._violations.append(
                f"{sorted(entered)} joined the ISR and no leader has named them: {before}, {found}"
            )

    def check(self) -> None:
        """Check what joined since the last time."""
        assert not self._violations, self._violations[0]
