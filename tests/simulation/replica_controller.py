"""A controller of one partition, in small: registrations, fencing, AlterPartition, elections.

It is reliable and its decisions are one list of images; brokers see them late. Rules as Kafka's
controller has them (KIP-841, KIP-903, KIP-966): the quorum has its own simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode
from ottla.metadata.partition import PartitionRegistration
from ottla.protocol.apis.alter_partition import AlterPartitionResponse
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.apis.alter_partition import AlterPartitionRequest
    from tests.simulation.replicas import SimulatedReplicas

TOPIC_ID = Uuid(b"simulated topic.")
SESSION_MS = 900
MIN_ISR = 2
_TopicData = AlterPartitionResponse.TopicData
_PartitionData = _TopicData.PartitionData


class BrokerInImage(NamedTuple):
    """A broker's registration."""

    epoch: int
    is_fenced: bool


class Image(NamedTuple):
    """What brokers know when they have seen all up to a version."""

    version: int
    partition: PartitionRegistration
    brokers: dict[int, BrokerInImage]


class ModelController:
    """Decides at once; `image` is the newest decision."""

    def __init__(self, cluster: SimulatedReplicas, replicas: Iterable[int]) -> None:
        self._cluster = cluster
        ids = tuple(replicas)
        self.image = Image(
            1,
            PartitionRegistration(
                ids, (Uuid(),) * len(ids), ids, ids[0], leader_epoch=0, partition_epoch=0
            ),
            {},
        )
        self._next_epoch = 1
        self._heard_ms: dict[int, int] = {}
        self.answers: dict[str, int] = {}

    @property
    def partition(self) -> PartitionRegistration:
        """The partition as it is decided."""
        return self.image.partition

    def is_running(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def _decide(
        self, partition: PartitionRegistration, brokers: dict[int, BrokerInImage] | None = None
    ) -> None:
        brokers = self.image.brokers if brokers is None else brokers
        before = self.image.partition
        if partition != before:
            partition = partition._replace(partition_epoch=before.partition_epoch + 1)
            if partition.leader != before.leader:
                partition = partition._replace(leader_epoch=before.leader_epoch + 1)
        self.image = Image(self.image.version + 1, partition, brokers)
        self._cluster.decided(self.image)

    # Brokers

    def register(self, broker_id: int, *, is_clean: bool) -> int:
        """Register a new incarnation, fenced; one that may have lost records is in sync no more."""
        epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        brokers = self.image.brokers | {broker_id: BrokerInImage(epoch, is_fenced=True)}
        self._decide(self._without(broker_id, is_lossy=not is_clean), brokers)
        self._heard_ms[broker_id] = self._cluster.clock.ms
        return epoch

    def heartbeat(self, broker_id: int, epoch: int) -> bool:
        """Unfence a broker; False for a former incarnation."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return False
        self._heard_ms[broker_id] = self._cluster.clock.ms
        if broker.is_fenced:
            brokers = self.image.brokers | {broker_id: BrokerInImage(epoch, is_fenced=False)}
            self._decide(self.partition, brokers)
            self._elect()
        return True

    def tick(self) -> None:
        """Fence brokers that are silent."""
        for broker_id, broker in self.image.brokers.items():
            silent_ms = self._cluster.clock.ms - self._heard_ms[broker_id]
            if not broker.is_fenced and silent_ms > SESSION_MS:
                self.fence(broker_id)

    def fence(self, broker_id: int) -> None:
        """Fence a broker: it is in sync no more, and leads no more."""
        epoch = self.image.brokers[broker_id].epoch
        brokers = self.image.brokers | {broker_id: BrokerInImage(epoch, is_fenced=True)}
        self._decide(self._without(broker_id, is_lossy=False), brokers)
        self._elect()

    # The partition

    def _with_isr(
        self, isr: tuple[int, ...], *, lossy: tuple[int, ...] = ()
    ) -> PartitionRegistration:
        """Return the partition with another ISR: who leaves it below the minimum stays eligible."""
        before = self.partition
        eligible: tuple[int, ...] = ()
        if len(isr) < MIN_ISR:
            known = dict.fromkeys((*before.eligible_leader_replicas, *before.isr))
            eligible = tuple(one for one in known if one not in isr and one not in lossy)
        return before._replace(isr=isr, eligible_leader_replicas=eligible)

    def _without(self, broker_id: int, *, is_lossy: bool) -> PartitionRegistration:
        isr = tuple(one for one in self.partition.isr if one != broker_id)
        after = self._with_isr(isr, lossy=(broker_id,) if is_lossy else ())
        if after.leader != broker_id:
            return after
        candidates = [one for one in isr if self.is_running(one)]
        return after._replace(leader=candidates[0] if candidates else -1)

    def _elect(self) -> None:
        """Elect a leader where there is none: in sync, else eligible."""
        partition = self.partition
        if partition.leader >= 0:
            return
        for candidate in partition.isr:
            if self.is_running(candidate):
                self._decide(partition._replace(leader=candidate))
                return
        for candidate in partition.eligible_leader_replicas:
            if self.is_running(candidate):
                after = self._with_isr((candidate,))
                self._decide(after._replace(leader=candidate))
                return

    def move_leader(self) -> None:
        """Elect another replica in sync."""
        partition, rng = self.partition, self._cluster.rng
        others = [one for one in partition.isr if one != partition.leader and self.is_running(one)]
        if others and partition.leader >= 0:
            self._decide(partition._replace(leader=rng.choice(others)))

    def reassign(self) -> None:
        """Add a replica, or take one away that is not needed for what is committed."""
        partition, rng = self.partition, self._cluster.rng
        if len(partition.replicas) <= 3:
            others = [one for one in self._cluster.brokers if one not in partition.replicas]
            if others:
                replicas = (*partition.replicas, rng.choice(others))
                self._decide(_with_replicas(partition, replicas))
            return
        leaving = rng.choice(partition.replicas)
        isr = tuple(one for one in partition.isr if one != leaving)
        running = [one for one in isr if self.is_running(one)]
        if len(isr) < MIN_ISR or partition.eligible_leader_replicas or not running:
            return
        after = self._with_isr(isr)
        after = _with_replicas(after, tuple(one for one in after.replicas if one != leaving))
        self._decide(after._replace(leader=running[0]) if after.leader == leaving else after)

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Decide about proposals."""
        broker = self.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH), topics=[])
        proposed = request.topics[0].partitions[0]
        code = self._alter(request.broker_id, proposed)
        self.answers[code.name] = self.answers.get(code.name, 0) + 1
        partition = self.partition
        is_done = code is ErrorCode.NONE
        answer = _PartitionData(
            partition_index=0,
            error_code=int(code),
            leader_id=partition.leader if is_done else -1,
            leader_epoch=partition.leader_epoch if is_done else -1,
            isr=list(partition.isr) if is_done else [],
            partition_epoch=partition.partition_epoch if is_done else -1,
        )
        return AlterPartitionResponse(topics=[_TopicData(topic_id=TOPIC_ID, partitions=[answer])])

    def _alter(
        self,
        broker_id: int,
        proposed: AlterPartitionRequest.TopicData.PartitionData,
    ) -> ErrorCode:
        partition = self.partition
        members = {one.broker_id: one.broker_epoch for one in proposed.new_isr_with_epochs}
        if proposed.leader_epoch != partition.leader_epoch or partition.leader != broker_id:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposed.partition_epoch != partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if broker_id not in members or not set(members) <= set(partition.replicas):
            return ErrorCode.INVALID_REQUEST
        for member, epoch in members.items():
            known = self.image.brokers.get(member)
            if known is None or known.is_fenced or epoch not in (-1, known.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        joined = set(members) - set(partition.isr)
        self._decide(self._with_isr(tuple(members)))
        rng = self._cluster.rng
        if joined and rng.random() < 0.2:  # the hardest test for who has just joined
            self._cluster.happen(rng.randrange(400), self.lead_by, min(joined))
        return ErrorCode.NONE

    def lead_by(self, broker_id: int) -> None:
        """Elect a replica in sync."""
        partition = self.partition
        if broker_id in partition.isr and self.is_running(broker_id) and partition.leader >= 0:
            self._decide(partition._replace(leader=broker_id))


def _with_replicas(
    partition: PartitionRegistration, replicas: tuple[int, ...]
) -> PartitionRegistration:
    return partition._replace(replicas=replicas, directories=(Uuid(),) * len(replicas))
