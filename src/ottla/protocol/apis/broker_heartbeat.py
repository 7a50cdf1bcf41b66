"""Keep a broker's registration alive; request unfencing or controlled shutdown (KIP-631).

Kafka: BrokerHeartbeatRequest, BrokerHeartbeatResponse (key 63).

v1 offline log directories (KIP-858); v2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, field, int16, int32, int64
from ottla.types import Uuid


class BrokerHeartbeatRequest(
    Request, key=63, versions="0-2", flexible="0+", listeners=("controller",)
):
    broker_id: int32
    broker_epoch: int64 = -1
    current_metadata_offset: int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[Uuid] = field("1+", default=EMPTY, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("2+", default=None, tag=1)  # KIP-1066


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool
