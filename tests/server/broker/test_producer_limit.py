"""A node that remembers as many producers as it may."""

from __future__ import annotations

import time

from ottla.errors import ErrorCode
from ottla.records.builder import encode_batch
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer, create_topic, produce


def batch(producer_id: int, sequence: int = 0) -> bytes:
    """Return a batch of one record of an idempotent producer, or of none (-1)."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    rows = [(int(time.time() * 1000), None, b"v", ())]
    return bytes(encode_batch(rows, **fields if producer_id >= 0 else {}))  # type: ignore[arg-type] # all are numbers


def test_new_producers_are_refused_and_known_ones_go_on() -> None:
    """POLICY_VIOLATION for the third of two, in the answer to its Produce."""
    with Cluster(config={"producer.states.max": "2"}) as cluster:
        assert create_topic(cluster, "t") == [0]
        peer = Peer(cluster.bootstrap)
        codes = [produce(peer, "t", batch(producer_id)) for producer_id in (7, 8, 9, -1)]
        assert codes == [0, 0, ErrorCode.POLICY_VIOLATION, 0]
        assert produce(peer, "t", batch(7, 1)) == 0
        peer.close()
