"""Leaders and coordinators that the metadata does not list: a new broker, an answer that lags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.offsets import OffsetAndMetadata, first_commit_error
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.apis.offset_commit import OffsetCommitRequest
from ottla.records.builder import encode_batch
from ottla.types import TopicPartition
from tests.clients.simulated import FakeCluster
from tests.clients.simulated_consumer import SimulatedConsumer
from tests.clients.simulated_group import FakeGroup

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create("t", 2)
    return cluster


def _without_second(cluster: FakeCluster, request: MetadataRequest) -> MetadataResponse:
    response = cluster.metadata(request)
    assert isinstance(response, MetadataResponse)
    response.brokers = [one for one in response.brokers if one.node_id != 2]
    return response


def _coordinated_by(node_id: int) -> Any:
    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=node_id,
            host="broker",
            port=9000 + node_id,
            error_code=0,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[found])

    return find


def _is_good(pending: Pending[Any]) -> bool:
    return pending.error is None and first_commit_error(pending.value) is None


def test_a_coordinator_that_the_metadata_lacks_is_reached() -> None:
    """Its answer tells where it is; metadata that comes later takes nothing away."""
    cluster = _cluster()
    cluster.leaders[T1] = 1
    FakeGroup(cluster)
    cluster.handlers[MetadataRequest] = lambda request: _without_second(cluster, request)
    cluster.handlers[FindCoordinatorRequest] = _coordinated_by(2)
    consumer = SimulatedConsumer(cluster)
    consumer.core.subscribe(["t"], None, None)
    coordinator = consumer.core.coordinator
    assert coordinator is not None
    consumer.sim.run(lambda: coordinator.known)
    consumer.core.client.metadata.mark_stale()
    consumer.settle(2)
    assert 2 not in consumer.core.client.metadata.brokers
    assert consumer.core.client.fatal is None
    assert _is_good(consumer.commit({T0: OffsetAndMetadata(1)}))
    assert {node for node, one in cluster.seen if isinstance(one, OffsetCommitRequest)} == {2}


def test_a_coordinator_that_is_gone_for_good_is_left_for_its_successor() -> None:
    """Nothing is connected, the broker is off the list: the first try finds that out."""
    cluster = _cluster()
    cluster.handlers[FindCoordinatorRequest] = _coordinated_by(2)
    consumer = SimulatedConsumer(cluster, connections_max_idle_ms=1_000)
    consumer.core.assign([T0])
    coordinator = consumer.core.coordinator
    assert coordinator is not None
    consumer.sim.run(lambda: coordinator.known)
    assert _is_good(consumer.commit({T0: OffsetAndMetadata(1)}))
    consumer.sim.run_for(2_000)
    consumer.sim.kill(2)
    del cluster.brokers[2]
    cluster.leaders[T1] = 1
    cluster.handlers[FindCoordinatorRequest] = _coordinated_by(1)
    consumer.core.client.metadata.mark_stale()
    consumer.sim.run_for(1_000)
    assert not _is_good(consumer.commit({T0: OffsetAndMetadata(2)}))
    consumer.sim.run(lambda: coordinator.node_id == 1, limit_ms=5_000)
    assert _is_good(consumer.commit({T0: OffsetAndMetadata(2)}))


def test_a_leader_that_is_not_listed_is_unknown_until_it_is() -> None:
    """An older answer kept the newer leader but dropped its broker: ask again, then go on."""
    cluster = _cluster()
    for log in cluster.logs.values():
        log.leader_epoch = 5
        log.append(bytes(encode_batch([(0, None, b"v", ())])))
    consumer = SimulatedConsumer(cluster)
    consumer.core.assign([T1])
    metadata = consumer.core.client.metadata
    consumer.sim.run(lambda: metadata.leader(T1) == 2)

    def lagging(request: MetadataRequest) -> MetadataResponse:
        response = _without_second(cluster, request)
        for topic in response.topics:
            for part in topic.partitions:
                part.leader_epoch, part.leader_id = 4, 1
        return response

    cluster.faults[MetadataRequest] = [lagging]
    metadata.mark_stale()
    consumer.sim.run(lambda: 2 not in metadata.brokers)
    assert metadata.leader(T1) == -1
    assert metadata.incomplete
    consumer.sim.run(consumer.poll, limit_ms=5_000)
    assert {node for node, one in cluster.seen if isinstance(one, FetchRequest)} == {2}
    assert not consumer.core.fetcher.errors


def test_a_preferred_replica_that_is_not_listed_is_not_read_from() -> None:
    """The leader serves instead, without an error for the user."""
    cluster = _cluster()
    cluster.logs[T0].append(bytes(encode_batch([(0, None, b"v", ())])))
    consumer = SimulatedConsumer(cluster)
    consumer.core.assign([T0])
    state = consumer.core.subscription.state(T0)
    state.preferred_replica, state.preferred_until_ms = 9, consumer.sim.now_ms + 300_000
    consumer.sim.run(consumer.poll, limit_ms=5_000)


def test_what_is_sent_after_a_pause_is_not_too_old_at_once() -> None:
    """Nothing polled the client for a minute: the timeout of a commit begins now, not then."""
    cluster = _cluster()
    consumer = SimulatedConsumer(cluster, request_timeout_ms=30_000)
    consumer.core.assign([T0])
    coordinator = consumer.core.coordinator
    assert coordinator is not None
    consumer.sim.run(lambda: coordinator.known)
    consumer.sim.now_ms += 60_000
    assert _is_good(consumer.commit({T0: OffsetAndMetadata(1)}))
