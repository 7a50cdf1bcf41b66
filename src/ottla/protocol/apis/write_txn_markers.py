"""The transaction coordinator writes commit and abort markers to partition leaders.

Kafka: WriteTxnMarkersRequest, WriteTxnMarkersResponse (key 27).

v1 flexible; v2 transaction version of the producer (KIP-1228).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+", listeners=("broker",)):
    markers: list[WritableTxnMarker]

    class WritableTxnMarker(Struct):
        producer_id: int64
        producer_epoch: int16
        transaction_result: bool
        topics: list[WritableTxnMarkerTopic]
        coordinator_epoch: int32
        transaction_version: int8 = field("2+", default=0, ignorable=True)  # KIP-1228

        class WritableTxnMarkerTopic(Struct):
            name: str
            partition_indexes: list[int32]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult]

    class WritableTxnMarkerResult(Struct):
        producer_id: int64
        topics: list[WritableTxnMarkerTopicResult]

        class WritableTxnMarkerTopicResult(Struct):
            name: str
            partitions: list[WritableTxnMarkerPartitionResult]

            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int32
                error_code: int16 = 0
