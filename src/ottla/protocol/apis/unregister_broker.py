"""Remove the registration of a broker (KIP-631).

Kafka: UnregisterBrokerRequest, UnregisterBrokerResponse (key 64).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, int16, int32


class UnregisterBrokerRequest(
    Request, key=64, versions="0", flexible="0+", listeners=("broker", "controller")
):
    broker_id: int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None
