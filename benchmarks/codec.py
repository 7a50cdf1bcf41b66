"""Codec: microseconds per Produce, Fetch and Metadata message, encoding and decoding.

Hot path: ottla.protocol.codec. Run: python benchmarks/codec.py [--check]; with --check it fails
if a budget is missed. Figures are valid on an idle machine only.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol import codec
from ottla.protocol.apis.fetch import FetchRequest, FetchResponse
from ottla.protocol.apis.metadata import MetadataResponse
from ottla.protocol.apis.produce import ProduceRequest, ProduceResponse
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.schema import Struct

ROUNDS = 25
ROUND_S = 0.02
RECORDS = bytes(1024)
TOPIC_ID = Uuid(bytes(range(16)))


class Case(NamedTuple):
    """A message, its version, and its encoding budget in microseconds."""

    name: str
    message: Struct
    version: int
    encode_budget_us: float | None = None


def produce_request(partitions: int) -> ProduceRequest:
    """Return a request with 1 KB per partition."""
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=i, records=RECORDS) for i in range(partitions)]
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[topic(topic_id=TOPIC_ID, partition_data=data)],
    )


def produce_response(partitions: int) -> ProduceResponse:
    """Return the response to a produce request."""
    topic = ProduceResponse.TopicProduceResponse
    data = [
        topic.PartitionProduceResponse(index=i, base_offset=i, error_message=None)
        for i in range(partitions)
    ]
    return ProduceResponse(responses=[topic(topic_id=TOPIC_ID, partition_responses=data)])


def fetch_request(partitions: int) -> FetchRequest:
    """Return a request for 1 MB per partition."""
    topic = FetchRequest.FetchTopic
    data = [
        topic.FetchPartition(partition=i, fetch_offset=i, partition_max_bytes=1 << 20)
        for i in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[topic(topic_id=TOPIC_ID, partitions=data)]
    )


def fetch_response(partitions: int) -> FetchResponse:
    """Return a response with 1 KB per partition."""
    topic = FetchResponse.FetchableTopicResponse
    data = [
        topic.PartitionData(
            partition_index=i, high_watermark=i, aborted_transactions=None, records=RECORDS
        )
        for i in range(partitions)
    ]
    return FetchResponse(responses=[topic(topic_id=TOPIC_ID, partitions=data)])


def metadata_response(partitions: int) -> MetadataResponse:
    """Return three brokers and one topic with three replicas per partition."""
    topic = MetadataResponse.MetadataResponseTopic
    data = [
        topic.MetadataResponsePartition(
            partition_index=i,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=[1, 2, 3],
            isr_nodes=[1, 2],
        )
        for i in range(partitions)
    ]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=i, host="broker", port=9092)
            for i in (1, 2, 3)
        ],
        cluster_id="cluster",
        controller_id=1,
        topics=[topic(name="topic", topic_id=TOPIC_ID, partitions=data)],
    )


def cases() -> list[Case]:
    """Return the measured messages."""
    return [
        Case("ProduceRequest, 1 partition", produce_request(1), 13),
        Case("ProduceRequest, 100 partitions", produce_request(100), 13),
        Case("ProduceResponse, 1 partition", produce_response(1), 13),
        Case("FetchRequest, 1 partition", fetch_request(1), 17),
        Case("FetchRequest, 100 partitions", fetch_request(100), 17),
        Case("FetchResponse, 1 partition", fetch_response(1), 17),
        Case("FetchResponse, 100 partitions", fetch_response(100), 17),
        Case("MetadataResponse, 200 partitions", metadata_response(200), 13, 260.0),
    ]


def microseconds(call: Callable[[], object]) -> float:
    """Return the best mean of several rounds."""
    call()
    count = 1
    while True:
        start = time.process_time()
        for _ in range(count):
            call()
        if time.process_time() - start > ROUND_S:
            break
        count *= 2
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(count):
            call()
        best = min(best, (time.process_time() - start) / count)
    return best * 1e6


def measure(case: Case) -> bool:
    """Print one line; return whether the budget was met."""
    message, version = case.message, case.version
    data = codec.to_bytes(message, version)
    encoded = microseconds(lambda: codec.encode(message, version))
    decoded = microseconds(lambda: codec.decode(type(message), version, data))
    budget = case.encode_budget_us
    kept = budget is None or encoded <= budget
    note = "" if budget is None else f"  budget {budget:.0f}: {'met' if kept else 'MISSED'}"
    print(f"{case.name:34} {len(data):8} B  encode {encoded:8.1f}  decode {decoded:8.1f}{note}")
    return kept


def main() -> int:
    """Measure all; with --check return 1 if a budget was missed."""
    print("best of", ROUNDS, "rounds, microseconds a message")
    kept = [measure(case) for case in cases()]
    return int("--check" in sys.argv and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
