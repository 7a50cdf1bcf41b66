"""A snapshot that has every kind of node of the metadata shell, with names that need care."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records import metadata as kinds
from ottla.raft.snapshot import encode_snapshot
from ottla.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.protocol.schema import Struct

TIME = 1_700_000_000_120
A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def write_snapshot(directory: Path, *more: Struct) -> Path:
    """Write the snapshot as a node would name it; return its path."""
    path = directory / "__cluster_metadata-0" / f"{90:020d}-{3:010d}.checkpoint"
    path.parent.mkdir(parents=True)
    records = [*_records(), *(MessageAndVersion(record, 0) for record in more)]
    values = [encode_record(record) for record in records]
    path.write_bytes(
        encode_snapshot(values, now_ms=TIME, leader_epoch=3, last_contained_log_timestamp=TIME)
    )
    return path


def quota(key: str, value: float, **entity: str | None) -> kinds.ClientQuotaRecord:
    """Return the record of one limit; `client_id` stands for client-id."""
    parts = [
        kinds.ClientQuotaRecord.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return kinds.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


def _records() -> list[MessageAndVersion]:
    old = [
        kinds.FeatureLevelRecord(name="metadata.version", feature_level=30),
        kinds.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        kinds.ConfigRecord(resource_type=4, resource_name="", name="log.cleaner.threads", value=""),
        kinds.ConfigRecord(
            resource_type=4, resource_name="1", name="log.cleaner.threads", value="a b"
        ),
        kinds.ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        kinds.ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="5000"),
        kinds.ConfigRecord(
            resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="é"
        ),
        quota("producer_byte_rate", 1024.0, user="a(b)\\c", client_id="x"),
        quota("request_percentage", 12345678.5, user="a(b)\\c", client_id="x"),
        quota("connection_creation_rate", 0.0001, ip="10.0.0.1"),
        kinds.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
        *_security(),
        kinds.RegisterControllerRecord(
            controller_id=7,
            incarnation_id=B,
            zk_migration_ready=True,
            end_points=[
                kinds.RegisterControllerRecord.ControllerEndpoint(
                    name=name, host="::1", port=port, security_protocol=3
                )
                for name, port in (("SECURE", 9094), ("CONTROLLER", 9093))
            ],
            features=[
                kinds.RegisterControllerRecord.ControllerFeature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, low, high in (("x", 0, 32767), ("kraft.version", 0, 1), ("y", 2, 2))
            ],
        ),
        kinds.TopicRecord(name="orders", topic_id=A),
        kinds.TopicRecord(name="[x]", topic_id=B),
    ]
    made: list[Struct] = [*old]
    return [MessageAndVersion(record, 0) for record in made] + _brokers() + _partitions()


def _security() -> list[Struct]:
    acl = kinds.AccessControlEntryRecord(
        id=A,
        resource_type=2,
        resource_name="t",
        pattern_type=4,
        principal="User:a b",
        host="*",
        operation=15,
        permission_type=2,
    )
    credential = kinds.UserScramCredentialRecord(
        name="alice", mechanism=2, salt=b"s\xff", stored_key=b"k", server_key=b"v", iterations=4096
    )
    token = kinds.DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=["User:c", "User:d"],
        issue_timestamp=1,
        max_timestamp=2,
        expiration_timestamp=3,
        token_id="id",
    )
    return [acl, credential, token]


def _brokers() -> list[MessageAndVersion]:
    made = []
    for broker_id, rack, cordoned in ((1, "r", [A]), (12, None, None)):
        broker = kinds.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=A,
            broker_epoch=5,
            end_points=[
                kinds.RegisterBrokerRecord.BrokerEndpoint(
                    name="PLAINTEXT", host="h", port=9092, security_protocol=0
                )
            ],
            features=[],
            rack=rack,
            fenced=rack is None,
            log_dirs=[A, B],
            cordoned_log_dirs=cordoned,
        )
        made.append(MessageAndVersion(broker, 4))
    return made


def _partitions() -> list[MessageAndVersion]:
    made = []
    for topic_id, number in ((A, 0), (A, 10), (A, 2), (B, 0)):
        partition = kinds.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1, 12],
            isr=[1],
            removing_replicas=[12] if number else [],
            adding_replicas=[],
            leader=-1 if number == 10 else 1,
            leader_recovery_state=number == 2,
            leader_epoch=4,
            partition_epoch=7,
            directories=[A, B],
            eligible_leader_replicas=[12],
            last_known_elr=[1],
        )
        made.append(MessageAndVersion(partition, 2))
    return made
