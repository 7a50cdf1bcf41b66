"""Open transactions are listed while their coordinators move between brokers, and brokers fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.purgatory.pending import Pending
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
        self.known = [1, 2]
        self.is_stale = False

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
            return SimpleNamespace(transaction_states=states, error_code=0)
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
        return SimpleNamespace(topics=[topic], error_code=0)

    def retry(self, attempt: Callable[[float], Any]) -> Any:
        """Try twice, with new metadata the second time if the first had reason to ask for it."""
        try:
            return attempt(0)
        except KafkaError:
            self.refusals += 1
            if self.is_stale:
                self.known = [1, 2]
            return attempt(0)

    def send(self, node_id: int, request: Any, *, purpose: str) -> Pending[Any]:
        """Answer as a broker; one that has failed refuses, which makes the metadata stale."""
        del purpose
        if node_id in {1, 2}:
            return Pending.of(self.request(node_id, request))
        self.mark_stale()
        return Pending.failed(KafkaError(ErrorCode.NETWORK_EXCEPTION))

    @property
    def brokers(self) -> list[int]:
        """The brokers in the client's metadata."""
        return self.known

    def mark_stale(self) -> None:
        """Note that the client asks for new metadata."""
        self.is_stale = True

    def coordination(self) -> Coordination:
        """Return the requests of a client that knows some brokers."""
        cluster: Any = SimpleNamespace(
            retry=self.retry,
            client=SimpleNamespace(metadata=self, send=self.send),
            runtime=SimpleNamespace(wait_for=lambda sent, _deadline_ms: sent.value),
        )
        return Coordination(cluster)


@pytest.mark.parametrize("may_describe", [True, False])
@pytest.mark.parametrize("moves_after", range(8))
def test_no_transaction_is_missed_while_its_coordinator_moves(
    moves_after: int, *, may_describe: bool
) -> None:
    """A two-phase transaction that a driver does not find stays open for ever."""
    brokers = Brokers(moves_after, may_describe=may_describe)
    assert brokers.coordination().open_transactions("q-task-") == ["q-task-0", "q-task-1"]
    assert brokers.refusals <= 1


@pytest.mark.parametrize("known", [[1, 2, 3], [3, 1, 2], [1], [2], []])
def test_brokers_that_come_and_go_are_learnt_from_new_metadata(known: list[int]) -> None:
    """A broker that has failed is not waited for; one that has come since is asked, too."""
    brokers = Brokers(moves_after=1000)
    brokers.known = known
    assert brokers.coordination().open_transactions("q-task-") == ["q-task-0", "q-task-1"]
    assert brokers.refusals == 1
