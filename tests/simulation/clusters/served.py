"""What leaders and the active controller accept: only requests of the epoch in which they lead.

A handler that raises would answer with an error, so what does not hold is kept for `check`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.node import Node
    from tests.simulation.clusters.joins import Joins


class Served:
    """Looks at fetches of followers and at changes of in-sync sets that are accepted."""

    def __init__(self, joins: Joins) -> None:
        """Take who hears of changes that are accepted."""
        self._joins = joins
        self._violations: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the fetches of all nodes while the context lasts."""
        read = Partition.read_for_follower

        def checked(partition: Partition, broker_id: int, *args: Any, **options: Any) -> Any:
            epoch, requested = partition.leader_epoch, args[1]
            result = read(partition, broker_id, *args, **options)
            if 0 <= requested[0] != epoch:
                self._violations.append(
                    f"the leader of {partition.topic_partition} in epoch {epoch} serves a fetch of "
                    f"{broker_id} in epoch {requested[0]}"
                )
            return result

        with patch.object(Partition, "read_for_follower", checked):
            yield

    def watch(self, node: Node) -> None:
        """Look at the changes of in-sync sets that the controller of a process accepts."""
        alteration = node.controller._runtime.controller.alter_partition
        alter = alteration._alter

        def checked(broker_id: int, topic: Any, requested: Any, records: list[Any]) -> Any:
            before = topic.partitions.get(requested.partition_index)
            count = len(records)
            answer = alter(broker_id, topic, requested, records)
            if len(records) > count:
                index, members = requested.partition_index, requested.new_isr_with_epochs
                named = tuple(member.broker_id for member in members)
                self._joins.accepted(topic.topic_id, index, requested.partition_epoch, named)
            if answer.error_code == 0:
                named = broker_id, requested.leader_epoch, requested.partition_epoch
                current = before.leader, before.leader_epoch, before.partition_epoch
                if named != current:
                    self._violations.append(
                        f"the controller takes a change of {topic.name}-{requested.partition_index}"
                        f" from leader, leader epoch, partition epoch {named}; they are {current}"
                    )
            return answer

        alteration._alter = checked  # type: ignore[method-assign] # of this process alone

    def check(self) -> None:
        """Check what was accepted since the last time."""
        assert not self._violations, self._violations[0]
