"""The texts of registrations, ACLs, credentials and tokens as Kafka's objects print them.

Kafka: org.apache.kafka.metadata.{BrokerRegistration, ControllerRegistration,
PartitionRegistration}, org.apache.kafka.metadata.authorizer.StandardAcl,
org.apache.kafka.image.node.{ScramCredentialDataNode, DelegationTokenDataNode}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.metadata.partition import LeaderRecoveryState
from ottla.security.acl import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import IntEnum

    from ottla.metadata.broker import (
        BrokerRegistration,
        ControllerRegistration,
        ListenerAddress,
        SupportedLevels,
    )
    from ottla.metadata.partition import PartitionRegistration
    from ottla.protocol.records.metadata import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )

_ANY_LEVEL: Final = 0x7FFF


def broker_text(broker: BrokerRegistration) -> str:
    """Return a broker's registration."""
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    cordoned = broker.cordoned_log_directories
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.broker_epoch}, "
        f"incarnationId={broker.incarnation_id}, listeners=[{_listeners(broker.listeners)}], "
        f"supportedFeatures={{{_features(broker.features)}}}, rack={rack}, "
        f"fenced={_truth(broker.fenced)}, "
        f"inControlledShutdown={_truth(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_truth(broker.is_migrating_zk_broker)}, "
        f"directories={_array(broker.log_directories)}, "
        f"cordonedDirectories={'null' if cordoned is None else _array(cordoned)})"
    )


def controller_text(controller: ControllerRegistration) -> str:
    """Return a controller's registration."""
    return (
        f"ControllerRegistration(id={controller.controller_id}, "
        f"incarnationId={controller.incarnation_id}, "
        f"zkMigrationReady={_truth(controller.zk_migration_ready)}, "
        f"listeners=[{_listeners(controller.listeners)}], "
        f"supportedFeatures={{{_features(controller.features)}}})"
    )


def partition_text(partition: PartitionRegistration) -> str:
    """Return a partition's registration."""
    return (
        f"PartitionRegistration(replicas={_array(partition.replicas)}, "
        f"directories={_array(partition.directories)}, isr={_array(partition.isr)}, "
        f"removingReplicas={_array(partition.removing_replicas)}, "
        f"addingReplicas={_array(partition.adding_replicas)}, "
        f"elr={_array(partition.eligible_leader_replicas)}, "
        f"lastKnownElr={_array(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={LeaderRecoveryState(partition.leader_recovery_state).name}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def acl_text(acl: AccessControlEntryRecord) -> str:
    """Return an access control entry."""
    return (
        f"StandardAcl[resourceType={_name(ResourceType, acl.resource_type)}, "
        f"resourceName={acl.resource_name}, patternType={_name(PatternType, acl.pattern_type)}, "
        f"principal={acl.principal}, host={acl.host}, "
        f"operation={_name(Operation, acl.operation)}, "
        f"permissionType={_name(Permission, acl.permission_type)}]"
    )


def scram_text(credential: UserScramCredentialRecord) -> str:
    """Return a credential; the password itself is not stored."""
    return (
        f"ScramCredentialData(salt={bytes(credential.salt).hex()}, "
        f"storedKey={bytes(credential.stored_key).hex()}, "
        f"serverKey={bytes(credential.server_key).hex()}, iterations={credential.iterations})"
    )


def token_text(token: DelegationTokenRecord) -> str:
    """Return a delegation token; its parentheses are Kafka's."""
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}"
        f"(tokenRequester={token.requester}(renewers={' '.join(token.renewers)}, "
        f"issueTimestamp={token.issue_timestamp}, maxTimestamp={token.max_timestamp}), "
        f"expiryTimestamp={token.expiration_timestamp}"
    )


def _listeners(listeners: Mapping[str, ListenerAddress]) -> str:
    return ", ".join(
        f"Endpoint(listenerName='{name}', "
        f"securityProtocol={SecurityProtocol(address.security_protocol).name}, "
        f"host='{address.host}', port={address.port})"
        for name, address in sorted(listeners.items())
    )


def _features(features: Mapping[str, SupportedLevels]) -> str:
    return ", ".join(f"{name}: {_range(levels)}" for name, levels in sorted(features.items()))


def _range(levels: SupportedLevels) -> str:
    if levels.low == levels.high:
        return str(levels.low)
    return f"{levels.low}+" if levels.high == _ANY_LEVEL else f"{levels.low}-{levels.high}"


def _array(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _name(codes: type[IntEnum], code: int) -> str:
    return codes(code if code in list(codes) else 0).name
