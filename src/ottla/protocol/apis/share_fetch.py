"""Acquire records as a member of a share group; may also acknowledge records (KIP-932).

Kafka: ShareFetchRequest, ShareFetchResponse (key 78).

v1 is the first stable version; v2 acquire mode (KIP-1206), renewal of locks (KIP-1222).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    field,
    int8,
    int16,
    int32,
    int64,
)
from ottla.types import Uuid


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+", listeners=("broker",)):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 = 0x7FFF_FFFF
    max_records: int32
    batch_size: int32
    share_acquire_mode: int8 = field("2+", default=0, ignorable=True)  # KIP-1206
    is_renew_ack: bool = field("2+", default=False)  # KIP-1222
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]

    class FetchTopic(Struct):
        topic_id: Uuid
        partitions: list[FetchPartition]

        class FetchPartition(Struct):
            partition_index: int32
            acknowledgement_batches: list[AcknowledgementBatch]

            class AcknowledgementBatch(Struct):
                first_offset: int64
                last_offset: int64
                acknowledge_types: list[int8]

    class ForgottenTopic(Struct):
        topic_id: Uuid
        partitions: list[int32]


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: str | None = None
            acknowledge_error_code: int16
            acknowledge_error_message: str | None = None
            current_leader: LeaderIdAndEpoch
            records: Records | None = field(default=None, nullable="none")
            acquired_records: list[AcquiredRecords]

            class LeaderIdAndEpoch(Struct):
                leader_id: int32
                leader_epoch: int32

            class AcquiredRecords(Struct):
                first_offset: int64
                last_offset: int64
                delivery_count: int16

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: int32
        rack: str | None = None
