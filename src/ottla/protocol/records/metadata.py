"""Records of the metadata log of a KRaft cluster.

Kafka: the definitions below common/metadata.

On disk a value is a frame version (1), the key, the version, then the body (metadata log framing).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Struct, field, float64, int8, int16, int32, int64, uint16
from ottla.types import Uuid


class RegisterBrokerRecord(Struct, key=0, versions="0-4", flexible="0+"):
    """Registration of a broker, which is fenced at first."""

    broker_id: int32
    is_migrating_zk_broker: bool = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", default=EMPTY, tag=0)  # KIP-858
    cordoned_log_dirs: list[Uuid] | None = field("4+", default=None, tag=1)

    class BrokerEndpoint(Struct):
        name: str
        host: str
        port: uint16
        security_protocol: int16

    class BrokerFeature(Struct):
        name: str
        min_supported_version: int16
        max_supported_version: int16


class UnregisterBrokerRecord(Struct, key=1, versions="0", flexible="0+"):
    """Removal of a broker's registration."""

    broker_id: int32
    broker_epoch: int64


class TopicRecord(Struct, key=2, versions="0", flexible="0+"):
    """A topic and its id."""

    name: str
    topic_id: Uuid


class PartitionRecord(Struct, key=3, versions="0-2", flexible="0+"):
    """The complete state of a partition."""

    partition_id: int32 = -1
    topic_id: Uuid
    replicas: list[int32]
    isr: list[int32]
    removing_replicas: list[int32]
    adding_replicas: list[int32]
    leader: int32 = -1
    leader_recovery_state: int8 = field(default=0, tag=0)  # KIP-704
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[Uuid] = field("1+", default=EMPTY)  # KIP-858
    eligible_leader_replicas: list[int32] | None = field("2+", default=None, tag=1)  # KIP-966
    last_known_elr: list[int32] | None = field("2+", default=None, tag=2)  # KIP-966


class ConfigRecord(Struct, key=4, versions="0", flexible="0+"):
    """A setting of a resource; a null value removes it."""

    resource_type: int8
    resource_name: str
    name: str
    value: str | None = field(sensitive=True)  # null: removed


class PartitionChangeRecord(Struct, key=5, versions="0-2", flexible="0+"):
    """A change of a partition; absent fields are unchanged."""

    partition_id: int32 = -1
    topic_id: Uuid
    isr: list[int32] | None = field(default=None, tag=0)
    leader: int32 = field(default=-2, tag=1)  # -2: unchanged
    replicas: list[int32] | None = field(default=None, tag=2)
    removing_replicas: list[int32] | None = field(default=None, tag=3)
    adding_replicas: list[int32] | None = field(default=None, tag=4)
    leader_recovery_state: int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[int32] | None = field("2+", default=None, tag=6)  # KIP-966
    last_known_elr: list[int32] | None = field("2+", default=None, tag=7)  # KIP-966


class FenceBrokerRecord(Struct, key=7, versions="0", flexible="0+"):
    """A broker is fenced (old form)."""

    id: int32
    epoch: int64


class UnfenceBrokerRecord(Struct, key=8, versions="0", flexible="0+"):
    """A broker is unfenced (old form)."""

    id: int32
    epoch: int64


class RemoveTopicRecord(Struct, key=9, versions="0", flexible="0+"):
    """Removal of a topic and its partitions."""

    topic_id: Uuid


class DelegationTokenRecord(Struct, key=10, versions="0", flexible="0+"):
    """A delegation token (KIP-900)."""

    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: int64
    max_timestamp: int64
    expiration_timestamp: int64
    token_id: str


class UserScramCredentialRecord(Struct, key=11, versions="0", flexible="0+"):
    """A SCRAM credential (KIP-900)."""

    name: str
    mechanism: int8
    salt: bytes = field(sensitive=True)
    stored_key: bytes = field(sensitive=True)
    server_key: bytes = field(sensitive=True)
    iterations: int32


class FeatureLevelRecord(Struct, key=12, versions="0", flexible="0+"):
    """The finalised level of a feature (KIP-778)."""

    name: str
    feature_level: int16


class ClientQuotaRecord(Struct, key=14, versions="0", flexible="0+"):
    """A quota of an entity."""

    entity: list[EntityData]
    key: str
    value: float64
    remove: bool

    class EntityData(Struct):
        entity_type: str
        entity_name: str | None


class ProducerIdsRecord(Struct, key=15, versions="0", flexible="0+"):
    """Producer ids below next_producer_id are allocated (KIP-730)."""

    broker_id: int32
    broker_epoch: int64 = -1
    next_producer_id: int64


class BrokerRegistrationChangeRecord(Struct, key=17, versions="0-3", flexible="0+"):
    """A change of a broker's registration."""

    broker_id: int32
    broker_epoch: int64
    fenced: int8 = field(default=0, tag=0)
    in_controlled_shutdown: int8 = field("1+", default=0, tag=1)
    log_dirs: list[Uuid] = field("2+", default=EMPTY, tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", default=None, tag=3)


class AccessControlEntryRecord(Struct, key=18, versions="0", flexible="0+"):
    """An ACL entry."""

    id: Uuid
    resource_type: int8
    resource_name: str
    pattern_type: int8
    principal: str
    host: str
    operation: int8
    permission_type: int8


class RemoveAccessControlEntryRecord(Struct, key=19, versions="0", flexible="0+"):
    """Removal of an ACL entry."""

    id: Uuid


class NoOpRecord(Struct, key=20, versions="0", flexible="0+"):
    """No change: advances the log while the cluster is idle (KIP-835)."""


class ZkMigrationStateRecord(Struct, key=21, versions="0", flexible="0+"):
    """State of a migration from ZooKeeper (KIP-866)."""

    zk_migration_state: int8


class RemoveUserScramCredentialRecord(Struct, key=22, versions="0", flexible="0+"):
    """Removal of a SCRAM credential."""

    name: str
    mechanism: int8


class BeginTransactionRecord(Struct, key=23, versions="0", flexible="0+"):
    """Begin of a metadata transaction (KIP-868)."""

    name: str | None = field(default=None, tag=0)


class EndTransactionRecord(Struct, key=24, versions="0", flexible="0+"):
    """Commit of a metadata transaction."""


class AbortTransactionRecord(Struct, key=25, versions="0", flexible="0+"):
    """Abort of a metadata transaction."""

    reason: str | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(Struct, key=26, versions="0", flexible="0+"):
    """Removal of a delegation token."""

    token_id: str


class RegisterControllerRecord(Struct, key=27, versions="0", flexible="0+"):
    """Registration of a controller (KIP-919)."""

    controller_id: int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]

    class ControllerEndpoint(Struct):
        name: str
        host: str
        port: uint16
        security_protocol: int16

    class ControllerFeature(Struct):
        name: str
        min_supported_version: int16
        max_supported_version: int16


class ClearElrRecord(Struct, key=28, versions="0", flexible="0+"):
    """Removal of the eligible leader replicas of a topic, or of all (KIP-966)."""

    topic_name: str
