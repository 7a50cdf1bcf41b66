"""A broker registers with the controller at start (KIP-631).

Kafka: BrokerRegistrationRequest, BrokerRegistrationResponse (key 62).

v1 migration from ZooKeeper (KIP-866); v2 log directories (KIP-858); v3 the epoch before a clean
shutdown (KIP-966); v4 allows a minimum feature version of 0.
"""

from __future__ import annotations

from ottla.protocol.schema import (
    EMPTY,
    Request,
    Response,
    Struct,
    field,
    int16,
    int32,
    int64,
    uint16,
)
from ottla.types import Uuid


class BrokerRegistrationRequest(
    Request, key=62, versions="0-4", flexible="0+", listeners=("controller",)
):
    broker_id: int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: str | None
    is_migrating_zk_broker: bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", default=EMPTY, ignorable=True)  # KIP-858
    previous_broker_epoch: int64 = field("3+", default=-1, ignorable=True)  # KIP-966

    class Listener(Struct):
        name: str
        host: str
        port: uint16
        security_protocol: int16

    class Feature(Struct):
        name: str
        min_supported_version: int16
        max_supported_version: int16


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
