"""What brokers and controllers ask the active controller, on the controller's listener.

Kafka: ControllerApis.handleBrokerRegistration and its neighbours, ClusterControlManager.

These come last: they add a fenced broker and a controller to the cluster.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.metadata.framing import NO_OP_VALUE, decode_record
from ottla.protocol import frames
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_partition import AlterPartitionRequest
from ottla.protocol.apis.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.apis.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.controller_registration import ControllerRegistrationRequest
from ottla.protocol.apis.envelope import EnvelopeRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.records.metadata import RegisterBrokerRecord
from ottla.records.batches import iterate_batches
from ottla.types import METADATA_TOPIC, Uuid
from tests.conformance.differential.case import build, case

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
FIRST, ADDED, UNKNOWN, ADDED_CONTROLLER = 1, 7, 8, 5
OTHER_ID, INCARNATION, DISK = (
    Uuid(text) for text in (b"no such topic id", b"the incarnation.", b"the added disk..")
)
METADATA_VERSION = {
    "name": "metadata.version",
    "min_supported_version": 7,
    "max_supported_version": 99,
}
ENDPOINT = {"name": "PLAINTEXT", "host": "added", "port": 9092, "security_protocol": 0}
# "User:ANONYMOUS", not authenticated by a token, with the version before it
PRINCIPAL = b"\0\0\5User\nANONYMOUS\0\0"


def _case(api: type[Request], name: str, fields: Fields, *errors: int) -> Case:
    return case(api, name, fields, errors=errors, listener="controller")


def _features(at: Side) -> list[dict[str, Any]]:
    """Return all features of the node as a registration lists them."""
    software = {"client_software_name": "cases", "client_software_version": "1"}
    found = at.ask(ApiKey.API_VERSIONS, 4, **software).supported_features
    return [
        {
            "name": one.name,
            "min_supported_version": one.min_version,
            "max_supported_version": one.max_version,
        }
        for one in found
    ]


def _cluster_id(at: Side) -> str:
    found: str = at.ask(ApiKey.DESCRIBE_CLUSTER, 0).cluster_id
    return found


def _registered(**changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return {
            "broker_id": ADDED,
            "cluster_id": _cluster_id(at),
            "incarnation_id": INCARNATION,
            "listeners": [ENDPOINT],
            "features": _features(at),
            "rack": None,
            "log_dirs": [DISK],
            **changes,
        }

    return fields


REGISTRATION = [
    _case(BrokerRegistrationRequest, name, _registered(**changes), *errors)
    for name, changes, errors in (
        ("valid", {}, [E_.INVALID_REGISTRATION]),
        ("of another cluster", {"cluster_id": "other"}, [E_.INCONSISTENT_CLUSTER_ID]),
        ("of a broker that is there", {"broker_id": FIRST}, [E_.DUPLICATE_BROKER_REGISTRATION]),
        (
            "that knows one feature",
            {"features": [METADATA_VERSION]},
            [E_.UNSUPPORTED_VERSION, E_.INVALID_REGISTRATION],
        ),
        ("without features", {"features": []}, [E_.INVALID_REGISTRATION]),
    )
]


def _epoch(at: Side, broker_id: int) -> int:
    """Return the epoch of a broker's last registration, from the metadata log."""
    found = -1
    for path in sorted((Path(at.log_dir) / f"{METADATA_TOPIC}-0").glob("*.log")):
        for batch in iterate_batches(memoryview(path.read_bytes())):
            if batch.is_control:
                continue
            for record in batch.records():
                if record.value == NO_OP_VALUE:
                    continue
                message = decode_record(record.value).message
                if isinstance(message, RegisterBrokerRecord) and message.broker_id == broker_id:
                    found = message.broker_epoch
    return found


def _added(at: Side) -> int:
    """Register the second broker once; return its epoch."""

    def register() -> int:
        version = BrokerRegistrationRequest.versions.highest
        fields = _registered()(at, version)
        request = build(BrokerRegistrationRequest, version, fields)
        answer = at.answer(request, version, listener="controller")
        assert answer.error_code == 0, answer
        return int(answer.broker_epoch)

    epoch: int = at.once("added broker", register)
    return epoch


def _beating(broker_id: int = ADDED, older: int = 0, **changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return {
            "broker_id": broker_id,
            "broker_epoch": _added(at) - older,
            "current_metadata_offset": 0,
            "want_fence": True,
            "want_shut_down": False,
            **changes,
        }

    return fields


HEARTBEAT = [
    _case(BrokerHeartbeatRequest, "valid, fenced", _beating()),
    _case(BrokerHeartbeatRequest, "valid, too old to be unfenced", _beating(want_fence=False)),
    _case(BrokerHeartbeatRequest, "of a past epoch", _beating(older=1), E_.STALE_BROKER_EPOCH),
    _case(BrokerHeartbeatRequest, "of an unknown broker", _beating(UNKNOWN), E_.STALE_BROKER_EPOCH),
]


def _allocated(broker_id: int = ADDED, older: int = 0) -> Fields:
    return lambda at, v: {"broker_id": broker_id, "broker_epoch": _added(at) - older}


PRODUCER_IDS = [
    _case(AllocateProducerIdsRequest, "valid", _allocated()),
    _case(
        AllocateProducerIdsRequest, "of a past epoch", _allocated(older=1), E_.STALE_BROKER_EPOCH
    ),
    _case(
        AllocateProducerIdsRequest,
        "of an unknown broker",
        _allocated(UNKNOWN),
        E_.STALE_BROKER_EPOCH,
    ),
]


def _in_sync(at: Side, version: int, *, older: int = 0, **changes: Any) -> dict[str, Any]:
    """Report all replicas of a topic as in sync, which changes nothing."""
    epochs = [{"broker_id": one, "broker_epoch": _epoch(at, one)} for one in at.replicas]
    topic_id = changes.pop("topic_id", None) or at.topic_id(at.topic("in-sync"))
    partition = {
        "partition_index": 0,
        "leader_epoch": 0,
        "new_isr": [*at.replicas],
        "new_isr_with_epochs": epochs,
        "partition_epoch": 0,
        **changes,
    }
    topics = [{"topic_id": topic_id, "partitions": [partition]}]
    return {"broker_id": FIRST, "broker_epoch": _epoch(at, FIRST) - older, "topics": topics}


IN_SYNC = [
    _case(AlterPartitionRequest, name, partial(_in_sync, **changes), *errors)
    for name, changes, errors in (
        ("valid", {}, []),
        ("of a past broker epoch", {"older": 1}, [E_.STALE_BROKER_EPOCH]),
        ("unknown topic", {"topic_id": OTHER_ID}, [E_.UNKNOWN_TOPIC_ID]),
        ("unknown partition", {"partition_index": 9}, [E_.UNKNOWN_TOPIC_OR_PARTITION]),
        ("of a leader epoch to come", {"leader_epoch": 9}, [E_.NOT_CONTROLLER]),
        ("of a partition epoch to come", {"partition_epoch": 9}, [E_.NOT_CONTROLLER]),
        ("of a past leader epoch", {"leader_epoch": -1}, [E_.FENCED_LEADER_EPOCH]),
        ("of a past partition epoch", {"partition_epoch": -1}, [E_.INVALID_UPDATE_VERSION]),
    )
]


def _assigned(at: Side, version: int, *, older: int = 0, **changes: Any) -> dict[str, Any]:
    """Report the directory of a replica, which is known."""
    meta = (Path(at.log_dir) / "meta.properties").read_text(encoding="utf-8")
    found = re.search(r"^directory\.id=(.*)$", meta, re.MULTILINE)
    assert found is not None
    topic_id = changes.get("topic_id") or at.topic_id(at.topic("in-sync"))
    partitions = [{"partition_index": changes.get("partition_index", 0)}]
    directory = {
        "id": changes.get("id") or Uuid.parse(found[1]),
        "topics": [{"topic_id": topic_id, "partitions": partitions}],
    }
    epoch = _epoch(at, FIRST) - older
    return {"broker_id": FIRST, "broker_epoch": epoch, "directories": [directory]}


ASSIGNED = [
    _case(AssignReplicasToDirsRequest, name, partial(_assigned, **changes), *errors)
    for name, changes, errors in (
        ("valid", {}, []),
        ("of a past broker epoch", {"older": 1}, [E_.STALE_BROKER_EPOCH]),
        ("unknown topic", {"topic_id": OTHER_ID}, [E_.UNKNOWN_TOPIC_ID]),
        ("unknown partition", {"partition_index": 9}, [E_.UNKNOWN_TOPIC_OR_PARTITION]),
    )
]


def _controller(at: Side, version: int) -> dict[str, Any]:
    return {
        "controller_id": ADDED_CONTROLLER,
        "incarnation_id": INCARNATION,
        "zk_migration_ready": False,
        "listeners": [{**ENDPOINT, "name": "CONTROLLER"}],
        "features": _features(at),
    }


CONTROLLERS = [_case(ControllerRegistrationRequest, "valid", _controller)]


def _enveloped(request: Request, version: int, principal: bytes | None = PRINCIPAL) -> Fields:
    frame = b"".join(bytes(part) for part in frames.encode_request(request, version, 7, "client"))  # type: ignore[arg-type] # no file slices
    inner = {"request_data": frame[4:], "request_principal": principal}
    return lambda at, v: {**inner, "client_host_address": bytes((127, 0, 0, 1))}


NOTHING = AlterClientQuotasRequest(entries=[], validate_only=False)
ENVELOPES = [
    _case(EnvelopeRequest, "valid", _enveloped(NOTHING, 1)),
    _case(
        EnvelopeRequest,
        "without a principal",
        _enveloped(NOTHING, 1, None),
        E_.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    _case(
        EnvelopeRequest,
        "of what is not forwarded",
        _enveloped(MetadataRequest(topics=[]), 12),
        E_.INVALID_REQUEST,
    ),
]
CASES: list[Case] = [
    *REGISTRATION,
    *HEARTBEAT,
    *PRODUCER_IDS,
    *IN_SYNC,
    *ASSIGNED,
    *CONTROLLERS,
    *ENVELOPES,
]
