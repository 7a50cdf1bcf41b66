"""The consumer groups of a simulated cluster: its coordinator is the one that ships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import ConsumerGroupConfig
from ottla.protocol import codec
from ottla.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from tests.coordinator.harness import World, context

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from tests.clients.simulated import FakeCluster, Simulation

SESSION_MS, HEARTBEAT_MS = 1_000, 100


class SimulatedGroups:
    """Serves the requests of members, whose clock is that of the client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.world = World()
        self.world.consumer_config = ConsumerGroupConfig(
            assignment_interval_ms=0,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self.follow_topics()
        self.world.elect()
        self.sims: list[Simulation] = []
        cluster.handlers[ConsumerGroupHeartbeatRequest] = self._heartbeat
        cluster.handlers[OffsetCommitRequest] = lambda request: self._call("offset_commit", request)
        cluster.handlers[OffsetFetchRequest] = lambda request: self._call("offset_fetch", request)

    def follow_topics(self) -> None:
        """Take over the topics of the cluster."""
        topics = self.world.topics
        topics.ids = dict(self.cluster.topic_ids)
        topics.counts = {}
        for partition in self.cluster.logs:
            topics.counts[partition.topic] = topics.counts.get(partition.topic, 0) + 1
        self.world.coordinator.on_topics_changed(list(topics.ids))

    def expel(self, group_id: str, member_id: str) -> None:
        """Fence a member, as its session's end does."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=-1
        )
        pending = self.world.coordinator.consumer_group_heartbeat(request, context(1))
        assert not pending.value.error_code

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Pending[Any]:
        return self._call("consumer_group_heartbeat", request)

    def _call(self, name: str, request: Any) -> Pending[Any]:
        self._follow_time()
        version = type(request).versions.highest
        sent = codec.decode(type(request), version, codec.to_bytes(request, version))
        pending: Pending[Any] = getattr(self.world.coordinator, name)(sent, context(version))
        return pending

    def _follow_time(self) -> None:
        now_ms = max((sim.now_ms for sim in self.sims), default=0) - 1_000_000
        if now_ms > self.world.clock.time_ms:
            self.world.advance(now_ms - self.world.clock.time_ms)
