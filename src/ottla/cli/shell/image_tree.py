"""The tree of the metadata shell: /image, and /local about the shell itself.

Directories have children, leaves a text: registrations, ACLs and the like as Kafka's objects print.

Kafka: org.apache.kafka.image.node, org.apache.kafka.shell.node.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from ottla._version import __version__
from ottla.config.broker.endpoints import SecurityProtocol
from ottla.config.definition import double_text
from ottla.metadata.features import METADATA_VERSION, metadata_version_name
from ottla.metadata.partition import LeaderRecoveryState
from ottla.metadata.resources import CLIENT_ID, IP, USER, ConfigResourceType
from ottla.security.acl import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from enum import IntEnum

    from ottla.metadata.broker import (
        BrokerRegistration,
        ControllerRegistration,
        ListenerAddress,
        SupportedLevels,
    )
    from ottla.metadata.image.cluster import FeaturesImage
    from ottla.metadata.image.configs import QuotasImage
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.image.security import ScramImage
    from ottla.metadata.partition import PartitionRegistration, TopicImage
    from ottla.metadata.resources import QuotaEntity
    from ottla.protocol.records.metadata import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )
    from ottla.types import OffsetAndEpoch

T = TypeVar("T")

_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_FINALIZED: Final = "finalized_"
_ENTITY_NAMES: Final = ((CLIENT_ID, "clientId"), (IP, "ip"), (USER, "user"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_LEVEL: Final = 0x7FFF


class Leaf(NamedTuple):
    """A node with contents."""

    text: str


class ShellDirectory(NamedTuple):
    """A node with children, which are created on lookup.

    `child` returns None for an unknown name.
    """

    unsorted_names: Callable[[], Sequence[str]]
    child: Callable[[str], Node | None]
    java_name: str = ""
    """Kafka's class, named in an error."""

    @property
    def names(self) -> list[str]:
        """The names of the children in the order of every listing."""
        return sorted(self.unsorted_names())


Node: TypeAlias = Leaf | ShellDirectory


class ShellError(Exception):
    """An error that ends a command, with Kafka's text."""


def directory_of(children: Mapping[str, Callable[[], Node]]) -> ShellDirectory:
    """Return a directory with these children."""

    def child(name: str) -> Node | None:
        make = children.get(name)
        return None if make is None else make()

    return ShellDirectory(lambda: list(children), child)


def tree_lines(node: Node, indentation: str = "") -> Iterator[str]:
    """Yield the lines of a node and of all its descendants."""
    if isinstance(node, Leaf):
        yield indentation + node.text
        return
    for name in node.names:
        yield f"{indentation}{name}:"
        child = node.child(name)
        if child is not None:
            yield from tree_lines(child, indentation + "  ")


def path_parts(path: str, working_directory: str) -> list[str]:
    """Return the components of a path from the root, `.` and `..` resolved."""
    absolute = path if path.startswith("/") else f"{working_directory}/{path}"
    parts: list[str] = []
    for part in absolute.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts


class Provenance(NamedTuple):
    """The last batch that an image contains."""

    offset_and_epoch: OffsetAndEpoch
    timestamp_ms: int


def root_of(image: MetadataImage, provenance: Provenance) -> ShellDirectory:
    """Return the root of the tree."""
    local = {"version": lambda: Leaf(__version__), "commitId": lambda: Leaf("unknown")}
    return directory_of(
        {"image": lambda: image_node(image, provenance), "local": lambda: directory_of(local)}
    )


def image_node(image: MetadataImage, provenance: Provenance) -> ShellDirectory:
    """Return the directory of an image."""
    cluster = image.cluster
    brokers = {str(key): partial(_leaf, broker_text, one) for key, one in cluster.brokers.items()}
    controllers = {
        str(key): partial(_leaf, controller_text, one) for key, one in cluster.controllers.items()
    }
    acls = {str(key): partial(_leaf, acl_text, one) for key, one in image.acls.by_id.items()}
    tokens = {
        key: partial(_leaf, token_text, one) for key, one in image.delegation_tokens.by_id.items()
    }
    by_name = {name: partial(_topic, one) for name, one in image.topics.by_name.items()}
    by_id = {str(one): partial(_topic, topic) for one, topic in image.topics.by_id.items()}
    return directory_of(
        {
            "provenance": lambda: Leaf(_provenance_text(provenance)),
            "features": lambda: _features(image.features),
            "cluster": lambda: _directories(brokers=brokers, controllers=controllers),
            "topics": lambda: _directories(byName=by_name, byId=by_id),
            "configs": lambda: _configs(image),
            "clientQuotas": lambda: _quotas(image.quotas),
            "producerIds": lambda: _values({"nextProducerId": image.producer_ids.next_producer_id}),
            "acls": lambda: _directories(byId=acls),
            "scram": lambda: _scram(image.scram),
            "delegationToken": lambda: directory_of(tokens),
        }
    )


def _leaf(text: Callable[[T], str], value: T) -> Leaf:
    return Leaf(text(value))


def _directories(**children: Mapping[str, Callable[[], Node]]) -> ShellDirectory:
    return directory_of({name: partial(directory_of, one) for name, one in children.items()})


def _values(values: Mapping[str, object]) -> ShellDirectory:
    return directory_of({name: partial(Leaf, str(value)) for name, value in values.items()})


def _provenance_text(provenance: Provenance) -> str:
    offset, epoch = provenance.offset_and_epoch
    when = _EPOCH + timedelta(milliseconds=provenance.timestamp_ms)
    shown = when.strftime("%Y-%m-%dT%H:%M:%S")
    if when.microsecond:
        shown += f".{when.microsecond:06d}".rstrip("0")
    return f"offset {offset}, epoch {epoch}, time {shown}Z[UTC]"


def _features(features: FeaturesImage) -> ShellDirectory:
    level = features.levels.get(METADATA_VERSION)
    version = "Optional.empty" if level is None else f"Optional[{metadata_version_name(level)}]"
    finalized = [f"{_FINALIZED}{name}" for name in features.levels if name != METADATA_VERSION]

    def child(name: str) -> Node | None:
        if name == "metadataVersion":
            return Leaf(version)
        feature = name.removeprefix(_FINALIZED)
        if feature == name:
            return None
        return Leaf(str(0 if feature == METADATA_VERSION else features.level(feature)))

    return ShellDirectory(lambda: ["metadataVersion", *finalized], child)


def _topic(topic: TopicImage) -> ShellDirectory:
    partitions = {
        str(key): partial(_leaf, partition_text, one) for key, one in topic.partitions.items()
    }
    values = {"name": partial(Leaf, topic.name), "id": partial(Leaf, str(topic.topic_id))}
    return directory_of({**partitions, **values})


def _configs(image: MetadataImage) -> ShellDirectory:
    children = {}
    for resource, settings in image.configs.by_resource.items():
        kind = ConfigResourceType(resource.type).name
        name = f"{kind}:{resource.name}" if resource.name else kind
        children[name] = partial(_values, settings)
    return directory_of(children)


def _scram(scram: ScramImage) -> ShellDirectory:
    users: dict[str, dict[str, Callable[[], Node]]] = {name: {} for name in _MECHANISMS}
    for (user, mechanism), credential in scram.by_user.items():
        for name, code in _MECHANISMS.items():
            if code == mechanism:
                users[name][user] = partial(_leaf, scram_text, credential)
    return _directories(**users)


def _quotas(quotas: QuotasImage) -> ShellDirectory:
    """Return the directory of the quotas.

    The name of a default entity has no part for it and leads nowhere, as in Kafka.
    """
    named = {
        _entity_name(entity): limits
        for entity, limits in quotas.by_entity.items()
        if all(name is not None for _, name in entity)
    }

    def child(name: str) -> Node | None:
        limits = named.get(name)
        if limits is None:
            return None
        return _values({key: double_text(value) for key, value in limits.items()})

    return ShellDirectory(
        lambda: [_entity_name(entity) for entity in quotas.by_entity],
        child,
        "org.apache.kafka.image.node.ClientQuotasImageNode",
    )


def _entity_name(entity: QuotaEntity) -> str:
    names = dict(entity)
    return "_".join(
        f"{shown}({_escaped(name)})"
        for kind, shown in _ENTITY_NAMES
        if (name := names.get(kind)) is not None
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def broker_text(broker: BrokerRegistration) -> str:
    """Return a broker's registration."""
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    cordoned = broker.cordoned_log_directories
    return (
        f"BrokerRegistration(id={broker.broker_id}, epoch={broker.broker_epoch}, "
        f"incarnationId={broker.incarnation_id}, listeners=[{_listeners(broker.listeners)}], "
        f"supportedFeatures={{{_registered_features(broker.features)}}}, rack={rack}, "
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
        f"supportedFeatures={{{_registered_features(controller.features)}}})"
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


def _registered_features(features: Mapping[str, SupportedLevels]) -> str:
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
