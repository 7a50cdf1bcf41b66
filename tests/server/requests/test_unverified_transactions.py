"""A transactional produce that the coordinator does not know is refused before the log is asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.produce import ProduceRequest
from ottla.records.builder import encode_batch
from tests.server.requests.untrusted_clients import Peer
from tests.waits import wait_for

if TYPE_CHECKING:
    from ottla.testing import Kafka

_Topic = ProduceRequest.TopicProduceData


def test_a_partition_that_was_not_added_is_refused_with_kafkas_text(kafka: Kafka) -> None:
    """As Kafka 4.3.0 answers Produce 8: INVALID_TXN_STATE, its text, no start of the log."""
    topic = kafka.topic()
    peer = Peer(kafka.bootstrap)
    asked = InitProducerIdRequest(transactional_id="unverified", transaction_timeout_ms=10_000)
    found = FindCoordinatorRequest(key="unverified", key_type=1)

    def is_led() -> bool:
        """Have the coordinator's topic made, which takes a moment."""
        return not (peer.ask(found, 3).error_code or peer.ask(asked, 1).error_code)

    wait_for(is_led)
    producer = peer.ask(asked, 1)
    batch = encode_batch(
        [(int(time.time() * 1000), None, b"x", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = [_Topic.PartitionProduceData(index=0, records=bytes(batch))]
    answer = peer.ask(
        ProduceRequest(
            transactional_id="unverified",
            acks=-1,
            timeout_ms=5000,
            topic_data=[_Topic(name=topic, partition_data=data)],
        ),
        8,
    )
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert refused.error_message == "Partition was not added to the transaction"
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)
