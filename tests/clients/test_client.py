"""The core client: negotiation, reconnecting, metadata, errors that a user can read."""

from __future__ import annotations

from ottla.clients.client import ANY_NODE, ConnectionKey
from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from tests.clients.simulated import (
    LOSE_REQUEST,
    NEVER_ANSWER,
    FakeCluster,
    Simulation,
    producer_settings,
)


def _simulation(brokers: int = 1, **settings: object) -> Simulation:
    cluster = FakeCluster(brokers)
    cluster.create("t", 3)
    simulation = Simulation(cluster, producer_settings(**settings))
    simulation.client.metadata.add_topics(["t"])
    return simulation


def test_metadata_arrives_through_the_bootstrap_server() -> None:
    """Brokers, partitions, ids and leaders are known after one answer."""
    sim = _simulation(3)
    sim.run(lambda: sim.client.metadata.partition_count("t") == 3)
    assert sorted(sim.client.metadata.brokers) == [1, 2, 3]
    assert sim.client.metadata.topic_id("t") == sim.cluster.topic_ids["t"]


def test_a_new_topic_needs_no_backoff() -> None:
    """Its metadata is requested at once, as by Kafka; that of a missing one after the backoff."""
    sim = _simulation(retry_backoff_ms=1000)
    sim.run(lambda: sim.client.metadata.partition_count("t"))
    sim.cluster.create("other")
    sim.client.metadata.add_topics(["other", "missing"])
    sim.run(lambda: sim.client.metadata.partition_count("other"), limit_ms=100)
    requests = len(sim.cluster.requests(MetadataRequest))
    for _ in range(5):
        sim.client.metadata.set_topics(["t", "other", "missing"])
        sim.run_for(100)
    assert len(sim.cluster.requests(MetadataRequest)) == requests


def test_a_lost_connection_fails_its_requests_and_is_made_again() -> None:
    """NETWORK_EXCEPTION for what was under way; the next request goes through."""
    sim = _simulation()
    sim.run(lambda: sim.client.is_reachable)
    sim.cluster.faults[MetadataRequest] = [LOSE_REQUEST]
    first = sim.client.send(1, MetadataRequest(topics=[]))
    sim.run(lambda: first.done)
    assert isinstance(first.error, KafkaError)
    assert first.error.code == ErrorCode.NETWORK_EXCEPTION
    second = sim.client.send(1, MetadataRequest(topics=[]))
    sim.run(lambda: second.done)
    assert second.error is None


def test_a_request_without_answer_times_out_and_drops_the_connection() -> None:
    """The stream cannot be used after it: the late answer would be taken for another."""
    sim = _simulation(request_timeout_ms=500)
    sim.run(lambda: sim.client.is_reachable)
    sim.cluster.faults[ListOffsetsRequest] = [NEVER_ANSWER]
    pending = sim.client.send(1, ListOffsetsRequest(replica_id=-1, topics=[]))
    sim.run(lambda: pending.done, limit_ms=1000)
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code == ErrorCode.REQUEST_TIMED_OUT
    assert not any(key.node_id == 1 for key in sim.open_connections)


def test_an_older_broker_is_asked_again_in_a_version_it_knows() -> None:
    """ApiVersions: error 35 in version 0 lowers the version of the question."""
    sim = _simulation()

    def refuse(_request: ApiVersionsRequest) -> ApiVersionsResponse:
        known = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)
        return ApiVersionsResponse(error_code=35, api_keys=[known])

    sim.cluster.faults[ApiVersionsRequest] = [refuse]
    sim.run(lambda: sim.client.is_reachable)
    assert len(sim.cluster.requests(ApiVersionsRequest)) == 2


def test_an_api_that_the_broker_lacks_fails_at_once() -> None:
    """UNSUPPORTED_VERSION, and the connection stays."""
    sim = _simulation()
    del sim.cluster.handlers[ListOffsetsRequest]
    pending = sim.client.send(ANY_NODE, ListOffsetsRequest(replica_id=-1, topics=[]))
    sim.run(lambda: pending.done)
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert "does not support LIST_OFFSETS" in pending.error.message


def test_a_refresh_waits_for_as_long_as_the_outage_lasts() -> None:
    """There is no limit of its own; the error of a call that gives up names address and cause."""
    sim = _simulation()
    sim.cluster.down.add(1)
    pending = sim.client.refresh()
    sim.run_for(60_000)
    assert not pending.done
    assert str(sim.client.unreachable()) == (
        "cannot reach broker:9001 (broker:9001: Connection refused; is a broker running there? "
        "Start one with `ottla server-start`, or correct bootstrap_servers)"
    )
    sim.cluster.down.clear()
    sim.run(lambda: pending.done, limit_ms=3_000)
    assert pending.error is None


def test_a_refresh_is_not_completed_by_a_response_to_an_earlier_request() -> None:
    """A topic added while a request was in flight is known when its refresh completes."""
    sim = _simulation()
    sim.cluster.create("later")
    first = sim.client.refresh()
    sim.run(lambda: sim.client.metadata.is_refreshing)
    sim.client.metadata.add_topics(["later"])
    second = sim.client.refresh()
    sim.run(lambda: first.done)
    assert not second.done
    sim.run(lambda: second.done)
    assert sim.client.metadata.partition_count("later") == 1


def test_reconnecting_backs_off_and_succeeds_when_the_broker_returns() -> None:
    """A dead broker is not hammered; a returning one is found within the maximum backoff."""
    sim = _simulation()
    sim.run(lambda: sim.client.is_reachable)
    sim.kill(1)
    before = len(sim.opened)
    sim.client.metadata.mark_stale()
    sim.run_for(10_000)
    assert len(sim.opened) - before < 60
    sim.cluster.down.clear()
    sim.run(lambda: sim.client.is_reachable, limit_ms=3_000)


def test_metadata_of_an_older_leader_epoch_is_not_believed() -> None:
    """KIP-320: an overtaken answer does not bring back the old leader."""
    sim = _simulation(2)
    sim.run(lambda: sim.client.is_reachable)
    key = next(iter(sim.cluster.leaders))
    sim.cluster.logs[key].leader_epoch = 5
    sim.cluster.leaders[key] = 2
    pending = sim.client.refresh()
    sim.run(lambda: pending.done)
    assert sim.client.metadata.leader(key) == 2
    sim.cluster.logs[key].leader_epoch = 4
    sim.cluster.leaders[key] = 1
    pending = sim.client.refresh()
    sim.run(lambda: pending.done)
    assert sim.client.metadata.leader(key) == 2


def test_unanswered_negotiation_does_not_hold_a_client_for_ever() -> None:
    """A silent listener is closed after the timeout, and the connection retried."""
    sim = _simulation(request_timeout_ms=300)
    sim.cluster.faults[ApiVersionsRequest] = [NEVER_ANSWER]
    sim.run(lambda: sim.client.is_reachable, limit_ms=3_000)


class RefusedOnce:
    """A login that the broker refuses the first time."""

    tries = 0
    session_lifetime_ms = 0

    def next_request(self, _response: object) -> None:
        """Need no request at all."""
        RefusedOnce.tries += 1
        if RefusedOnce.tries == 1:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)


def test_a_refused_login_is_forgotten_when_a_later_one_succeeds() -> None:
    """Callers get the error, but only until a login succeeds."""
    sim = _simulation()
    RefusedOnce.tries = 0
    sim.client._login = lambda _host: RefusedOnce()
    sim.run(lambda: sim.client.pending_error() is not None)
    sim.run(lambda: sim.client.is_reachable)
    assert sim.client.pending_error() is None


def test_a_response_that_cannot_be_decoded_fails_its_request() -> None:
    """Else the metadata would never be requested again: one request at a time is in flight."""
    sim = _simulation()
    sim.run(lambda: sim.client.is_reachable)
    sim.cluster.faults[MetadataRequest] = [NEVER_ANSWER]
    key = ConnectionKey(1)
    pending = sim.client.send(1, MetadataRequest(topics=[]))
    sim.run(lambda: key in sim.open_connections and sim.client.in_flight(1) == 1)
    ((correlation_id, entry),) = sim.client._connections[key].channel._sent
    assert entry.pending is pending
    sim.client.received(key, memoryview(correlation_id.to_bytes(4, "big")), sim.now_ms)
    assert isinstance(pending.error, CorruptMessage)
    sim.cluster.faults.clear()
    later = sim.client.send(1, MetadataRequest(topics=[]))
    sim.run(lambda: later.done)
    assert later.error is None
