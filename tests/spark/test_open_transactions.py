"""Open transactions are listed while their coordinators move between brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.spark.coordination import TRANSACTION_STATE_TOPIC, Coordination

if TYPE_CHECKING:
    from collections.abc import Callable

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition


class Brokers:
    """Brokers 1 and 2, which coordinate one partition each; one moves after so many requests."""

    def __init__(self, moves_after: int, *, may_describe: bool = True) -> None:
        self.moves_after = moves_after
        self.may_describe = may_describe
        self.requests = 0
        self.refusals = 0

    def owner(self, partition: int) -> tuple[int, int]:
        """Return leader and leader epoch; partition 1 moves from broker 2 to broker 1."""
        has_moved = partition == 1 and self.requests > self.moves_after
        return (1, 6) if has_moved else (partition + 1, 5)

    def request(self, node_id: int, request: Any) -> Any:
        """Answer as one of the brokers."""
        self.requests += 1
        if not isinstance(request, MetadataRequest):
            names = [f"q-task-{index}" for index in range(2) if self.owner(index)[0] == node_id]
            states = [SimpleNamespace(transactional_id=name) for name in names]
            return SimpleNamespace(transaction_states=states)
        parts = []
        for index in range(2 if self.may_describe else 0):
            leader_id, epoch = self.owner(index)
            parts.append(
                _Partition(
                    partition_index=index,
                    leader_id=leader_id,
                    leader_epoch=epoch,
                    replica_nodes=[],
                    isr_nodes=[],
                    offline_replicas=[],
                )
            )
        topic = _Topic(name=TRANSACTION_STATE_TOPIC, partitions=parts)
        return SimpleNamespace(topics=[topic])

    def retry(self, attempt: Callable[[float], Any]) -> Any:
        """Try twice."""
        try:
            return attempt(0)
        except KafkaError as error:
            self.refusals += error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            return attempt(0)


@pytest.mark.parametrize("may_describe", [True, False])
@pytest.mark.parametrize("moves_after", range(8))
def test_no_transaction_is_missed_while_its_coordinator_moves(
    moves_after: int, monkeypatch: pytest.MonkeyPatch, *, may_describe: bool
) -> None:
    """A two-phase transaction that a driver does not find stays open for ever."""
    brokers = Brokers(moves_after, may_describe=may_describe)
    cluster: Any = SimpleNamespace(
        retry=brokers.retry,
        client=SimpleNamespace(metadata=SimpleNamespace(brokers=[1, 2])),
    )
    coordination = Coordination(cluster)
    monkeypatch.setattr(coordination, "_request_of_node", brokers.request)
    assert coordination.open_transactions("q-task-") == ["q-task-0", "q-task-1"]
    assert brokers.refusals <= 1
