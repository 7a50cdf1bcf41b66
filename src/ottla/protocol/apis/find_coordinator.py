"""Which broker coordinates a group, a transactional id or a share partition.

Kafka: FindCoordinatorRequest, FindCoordinatorResponse (key 10).

v1 key type; v3 flexible; v4 many keys at once (KIP-699); v5 error TRANSACTION_ABORTABLE (KIP-890);
v6 share keys `group:topic id:partition` (KIP-932).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int8, int16, int32


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+", listeners=("broker",)):
    key: str = field("0-3", default="")
    key_type: int8 = field("1+", default=0)  # 0 group, 1 transaction, 2 share
    coordinator_keys: list[str] = field("4+", default=EMPTY)  # KIP-699


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    error_code: int16 = field("0-3", default=0)
    error_message: str | None = field("1-3", default="", ignorable=True)
    node_id: int32 = field("0-3", default=0)
    host: str = field("0-3", default="")
    port: int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=EMPTY)

    class Coordinator(Struct):
        key: str
        node_id: int32
        host: str
        port: int32
        error_code: int16 = 0
        error_message: str | None = field(ignorable=True)
