"""Accept, release or reject acquired records (KIP-932).

Kafka: ShareAcknowledgeRequest, ShareAcknowledgeResponse (key 79).

v1 is the first stable version; v2 renewal of locks (KIP-1222).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int8, int16, int32, int64
from ottla.types import Uuid


class ShareAcknowledgeRequest(
    Request, key=79, versions="1-2", flexible="0+", listeners=("broker",)
):
    group_id: str | None = None
    member_id: str | None
    share_session_epoch: int32
    is_renew_ack: bool = field("2+", default=False)  # KIP-1222
    topics: list[AcknowledgeTopic]

    class AcknowledgeTopic(Struct):
        topic_id: Uuid
        partitions: list[AcknowledgePartition]

        class AcknowledgePartition(Struct):
            partition_index: int32
            acknowledgement_batches: list[AcknowledgementBatch]

            class AcknowledgementBatch(Struct):
                first_offset: int64
                last_offset: int64
                acknowledge_types: list[int8]


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            error_message: str | None = None
            current_leader: LeaderIdAndEpoch

            class LeaderIdAndEpoch(Struct):
                leader_id: int32
                leader_epoch: int32

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: int32
        rack: str | None = None
