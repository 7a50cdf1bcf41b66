"""Append record batches to partition logs.

Kafka: ProduceRequest, ProduceResponse (key 0).

acks 0 gets no response at all, 1 waits for the leader, -1 for the in-sync replicas.
v5 returns the log start offset; v8 lists the invalid records of a batch (KIP-467); v9 flexible;
v10 returns the current leader if the broker is not the leader (KIP-951); v11 and v12 belong to the
transaction protocol with epoch bumps: from v12 on Produce adds its partition to the transaction
implicitly (KIP-890); v13 topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
    Records,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
)
from ottla.types import ZERO_UUID, Uuid


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+", listeners=("broker",)):
    transactional_id: str | None = None
    acks: int16  # 0, 1 or -1 (all in sync)
    timeout_ms: int32
    topic_data: list[TopicProduceData]

    class TopicProduceData(Struct):
        name: str = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_data: list[PartitionProduceData]

        class PartitionProduceData(Struct):
            index: int32
            records: Records | None = None


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: int32 = field(default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=EMPTY, tag=0)

    class TopicProduceResponse(Struct):
        name: str = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: list[PartitionProduceResponse]

        class PartitionProduceResponse(Struct):
            index: int32
            error_code: int16 = 0
            base_offset: int64
            log_append_time_ms: int64 = field(default=-1, ignorable=True)  # -1: CreateTime
            log_start_offset: int64 = field("5+", default=-1, ignorable=True)
            # KIP-467
            record_errors: list[BatchIndexAndErrorMessage] = field(
                "8+", default=EMPTY, ignorable=True
            )
            error_message: str | None = field("8+", default=None, ignorable=True)
            current_leader: LeaderIdAndEpoch = field("10+", default=EMPTY, tag=0)  # KIP-951

            class BatchIndexAndErrorMessage(Struct):
                batch_index: int32
                batch_index_error_message: str | None = None

            class LeaderIdAndEpoch(Struct):
                leader_id: int32 = -1
                leader_epoch: int32 = -1

    class NodeEndpoint(Struct):
        node_id: int32
        host: str
        port: int32
        rack: str | None = None
