"""A broker takes a block of producer ids from the controller (KIP-730).

Kafka: AllocateProducerIdsRequest, AllocateProducerIdsResponse (key 67).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(
    Request, key=67, versions="0", flexible="0+", listeners=("controller",)
):
    broker_id: int32
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64
    producer_id_len: int32
