"""A partition leader changes its in-sync replicas at the controller (KIP-497).

Kafka: AlterPartitionRequest, AlterPartitionResponse (key 56).

v2 topic ids (KIP-841); v3 the broker epoch of each member, which tells a restarted broker apart
(KIP-903).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int8, int16, int32, int64
from ottla.types import Uuid


class AlterPartitionRequest(
    Request, key=56, versions="2-3", flexible="0+", listeners=("controller",)
):
    broker_id: int32
    broker_epoch: int64 = -1
    topics: list[TopicData]

    class TopicData(Struct):
        topic_id: Uuid = field(ignorable=True)
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            leader_epoch: int32
            new_isr: list[int32] = field("0-2", default=EMPTY)
            new_isr_with_epochs: list[BrokerState] = field("3+", default=EMPTY)  # KIP-903
            leader_recovery_state: int8 = 0  # KIP-704
            partition_epoch: int32

            class BrokerState(Struct):
                broker_id: int32
                broker_epoch: int64 = -1


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicData]

    class TopicData(Struct):
        topic_id: Uuid = field(ignorable=True)
        partitions: list[PartitionData]

        class PartitionData(Struct):
            partition_index: int32
            error_code: int16 = 0
            leader_id: int32
            leader_epoch: int32
            isr: list[int32]
            leader_recovery_state: int8 = field(default=0, ignorable=True)
            partition_epoch: int32
