"""The quorum's requests on a node's controller listener, over its sockets."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin
from ottla.errors import ErrorCode
from ottla.protocol import codec, frames
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.frames import ResponseHeader
from ottla.raft.requests import (
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    LeaderAndEpoch,
    ReplicaKey,
    Vote,
    VoteResponse,
)
from ottla.raft.snapshot import SnapshotReader
from ottla.raft.voter_set import VoterAddress
from ottla.raft.wire import requests, responses
from ottla.records.batches import iterate_batches
from ottla.server.controller.quorum_view import QuorumRequests
from ottla.server.requests.api import served_apis
from ottla.testing.cluster import Cluster
from ottla.types import FileSlice, OffsetAndEpoch, Uuid
from tests.controller.harness import Harness
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.raft.requests import Request

LISTENER = "CONTROLLER"
OBSERVER = ReplicaKey(9, Uuid(b"an observer's id"))


class Peer:
    """Another member of the quorum, on one connection."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.address = cluster.run(lambda node: node.addresses[LISTENER])
        self.cluster_id = cluster.run(lambda node: node.cluster_id)
        self._socket = socket.create_connection(self.address, timeout=WAIT_S)
        self._sent: Any = None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads, as responses name it."""
        leader_id, epoch = self.cluster.run(
            lambda node: (node.controller.quorum.leader_id, node.controller.quorum.leader_epoch)
        )
        return LeaderAndEpoch(leader_id, epoch, (VoterAddress(LISTENER, *self.address),))

    @property
    def end_offset(self) -> int:
        """The committed end of the metadata log."""
        return self.cluster.run(lambda node: node.controller.quorum.high_watermark)

    def send(self, request: Request) -> None:
        """Send a request in the newest version."""
        cls = requests.message_class(request)
        version = cls.versions.highest
        self._sent = cls, version
        message = requests.to_message(request, version, cluster_id=self.cluster_id)
        parts = frames.encode_request(message, version, 7, "peer")
        self._socket.sendall(b"".join(one for one in parts if not isinstance(one, FileSlice)))

    def receive(self) -> Any:
        """Return the response."""
        cls, version = self._sent
        key = ApiKey(cls.message_key)
        with self._socket.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            body = memoryview(stream.read(size))
        header = response_header_version(key, version)
        position = codec.decode_at(ResponseHeader, header, body, 0)[1]
        message: Any = codec.decode_at(response_class(key), version, body, position)[0]
        return responses.from_message(message, LISTENER)

    def ask(self, request: Request) -> Any:
        """Return the response to a request."""
        self.send(request)
        return self.receive()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node for the module."""
    with Cluster() as running:
        yield running


@pytest.fixture
def peer(cluster: Cluster) -> Iterator[Peer]:
    """Connect to its controller listener."""
    connected = Peer(cluster)
    yield connected
    connected.close()


def test_the_quorums_requests_are_served_to_controllers_only() -> None:
    """Fetch is on both listeners: each with its own handler."""
    keys = {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT}
    assert keys <= served_apis("controller").keys()
    assert not keys & served_apis("broker").keys()
    fetches = {served_apis(kind)[ApiKey.FETCH].handler for kind in ("broker", "controller")}
    assert len(fetches) == 2


def test_an_observer_reads_the_metadata_log(peer: Peer) -> None:
    """Its batches, with the high watermark, from any offset on."""
    leader = peer.leader
    fetched = peer.ask(Fetch(OBSERVER, leader.epoch, 1, leader.epoch, -1, 0))
    assert (fetched.error, fetched.leader, fetched.log_start_offset) == (0, leader, 0)
    offsets = [batch.base_offset for batch in iterate_batches(fetched.records)]
    assert offsets[0] == 0
    assert fetched.high_watermark > offsets[-1]
    rest = peer.ask(Fetch(OBSERVER, leader.epoch, offsets[2], leader.epoch, -1, 0))
    assert [batch.base_offset for batch in iterate_batches(rest.records)][: len(offsets) - 2] == (
        offsets[2:]
    )


def test_observers_are_described(peer: Peer) -> None:
    """With the end of their logs and when they fetched; a consumer's fetch leaves nothing."""
    leader, end_offset = peer.leader, peer.end_offset
    for replica in (OBSERVER, OBSERVER._replace(node_id=-1)):
        peer.ask(Fetch(replica, leader.epoch, end_offset, leader.epoch, -1, 0))
    with Admin(bootstrap_servers=peer.cluster.bootstrap) as admin:
        (observer,) = admin.describe_metadata_quorum().observers
    assert (observer.replica_id, observer.directory_id) == OBSERVER
    assert observer.log_end_offset == end_offset
    assert observer.last_fetch_ms is not None
    assert abs(observer.last_fetch_ms - time.time() * 1000) < 60_000
    assert (observer.last_caught_up_ms or 0) <= observer.last_fetch_ms


def test_a_fetch_at_the_end_waits_for_records(peer: Peer) -> None:
    """A new topic answers it at once, time without one at the end of its wait."""
    leader, end_offset = peer.leader, peer.end_offset
    fetch = Fetch(OBSERVER, leader.epoch, end_offset, leader.epoch, end_offset, 60_000)
    peer.send(fetch)
    with Admin(bootstrap_servers=peer.cluster.bootstrap) as admin:
        admin.create_topics(["awaited"])
    fetched = peer.receive()
    assert next(iterate_batches(fetched.records)).base_offset == end_offset
    end_offset = peer.end_offset
    fetch = Fetch(OBSERVER, leader.epoch, end_offset, leader.epoch, end_offset, 1)
    assert peer.ask(fetch).error is ErrorCode.NONE


def test_an_observer_reads_a_snapshot(peer: Peer) -> None:
    """Part by part, whole at the end; another one, and a part beyond its end, have codes."""
    leader = peer.leader
    snapshot_id = peer.cluster.run(lambda node: node.controller._runtime.snapshots.write())
    request = FetchSnapshot(OBSERVER, leader.epoch, snapshot_id, 0)
    deadline = time.monotonic() + 60
    part: FetchSnapshotResponse = peer.ask(request)
    while part.error is not ErrorCode.NONE:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # a worker writes it
        part = peer.ask(request)
    assert (part.leader, part.snapshot_id, part.position) == (leader, snapshot_id, 0)
    data = bytes(part.data)
    assert len(data) == part.size_bytes
    SnapshotReader(data, snapshot_id).check()
    rest = peer.ask(request._replace(position=100))
    assert bytes(rest.data) == data[100:]
    for other, error in [
        (request._replace(position=part.size_bytes), ErrorCode.POSITION_OUT_OF_RANGE),
        (request._replace(position=-1), ErrorCode.POSITION_OUT_OF_RANGE),
        (request._replace(snapshot_id=OffsetAndEpoch(1, 1)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (request._replace(snapshot_id=OffsetAndEpoch(0, 0)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (request._replace(epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        answer = peer.ask(other)
        assert answer == FetchSnapshotResponse(error, leader, OffsetAndEpoch(0, 0))
    fetched: FetchResponse = peer.ask(Fetch(OBSERVER, leader.epoch, 0, 0, -1, 0))
    assert (fetched.snapshot_id, bytes(fetched.records)) == (snapshot_id, b"")


def test_another_clusters_member_is_refused(peer: Peer) -> None:
    """Nothing is read or changed for it."""
    peer.cluster_id = "another"
    answer = peer.ask(Vote(OBSERVER, 99, OffsetAndEpoch(0, 0), False, ReplicaKey(1)))
    assert answer == VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, LeaderAndEpoch(-1, -1))
    assert peer.leader.leader_id == 1


def test_a_vote_in_a_newer_epoch_ends_the_leaders_epoch() -> None:
    """The lone voter refuses the vote, is elected again and takes operations."""
    harness = Harness().bring_up()
    clock, driver, timer = harness.clock, harness.node.driver, harness.timer
    served = QuorumRequests(driver, cluster_id=harness.cluster_id)
    epoch = driver.node.epoch
    vote = Vote(OBSERVER, epoch + 1, OffsetAndEpoch(0, 0), False, ReplicaKey(1))
    message = requests.to_message(vote, 2, cluster_id=harness.cluster_id)
    answer = served.serve(message, 2, LISTENER)
    assert not answer.done, "the new epoch is not on disk yet"
    harness.run_turn()
    unled = LeaderAndEpoch(-1, epoch + 1)
    assert responses.from_message(answer.value, LISTENER) == VoteResponse(ErrorCode.NONE, unled)
    assert not harness.node.active
    for _ in range(5):
        clock.ms += 1000
        timer.advance(clock.ms)
        harness.run_turn()
    assert harness.node.active
    assert driver.node.epoch > epoch + 1
    assert harness.create("after").error_code == 0
