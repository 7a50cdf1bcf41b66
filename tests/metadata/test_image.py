"""The image: records in, state and delta out, and back to records."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import CorruptMessage, KafkaError, UnsupportedVersion
from ottla.metadata.broker import SupportedLevels
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import (
    NO_OP_VALUE,
    RECORD_CLASSES,
    MessageAndVersion,
    decode_record,
    encode_record,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.resources import ConfiguredResource
from ottla.protocol.records import metadata as kinds
from ottla.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
END = OffsetAndEpoch(9, 1)


def _records(*messages: Struct, version: int = 0) -> list[MessageAndVersion]:
    return [MessageAndVersion(message, version) for message in messages]


def _topic(name: str, topic_id: Uuid, partitions: int = 1) -> list[MessageAndVersion]:
    return _records(kinds.TopicRecord(name=name, topic_id=topic_id)) + _records(
        *(
            kinds.PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=[1],
                isr=[1],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[A],
            )
            for number in range(partitions)
        ),
        version=2,
    )


def _full_image() -> MetadataImage:
    """Build an image with every kind of state."""
    image = MetadataImage()
    records = _records(
        kinds.FeatureLevelRecord(name="metadata.version", feature_level=30),
        kinds.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        kinds.ConfigRecord(resource_type=4, resource_name="", name="x", value="1"),
        kinds.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        kinds.ClientQuotaRecord(
            entity=[kinds.ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
            key="producer_byte_rate",
            value=5.0,
            remove=False,
        ),
        kinds.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
        kinds.AccessControlEntryRecord(
            id=A,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        kinds.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        kinds.DelegationTokenRecord(
            owner="User:a",
            requester="User:a",
            renewers=[],
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=2,
            token_id="id",
        ),
        kinds.RegisterControllerRecord(
            controller_id=1,
            incarnation_id=B,
            zk_migration_ready=False,
            end_points=[],
            features=[
                kinds.RegisterControllerRecord.ControllerFeature(
                    name="kraft.version", min_supported_version=0, max_supported_version=1
                )
            ],
        ),
    )
    records += _records(
        kinds.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=A,
            broker_epoch=5,
            end_points=[
                kinds.RegisterBrokerRecord.BrokerEndpoint(
                    name="PLAINTEXT", host="h", port=9092, security_protocol=0
                )
            ],
            features=[],
            rack="r",
            fenced=False,
            log_dirs=[A],
        ),
        version=4,
    )
    image.apply(records + _topic("t", A, 3), END)
    return image


def test_a_snapshot_makes_the_same_image() -> None:
    """Writing all records and applying them to an empty image changes nothing."""
    image = _full_image()
    values = [encode_record(record) for record in image.records()]
    again = MetadataImage()
    again.apply([decode_record(value) for value in values], END)
    assert [encode_record(record) for record in again.records()] == values
    assert again.cluster.brokers == image.cluster.brokers
    assert again.cluster.controllers[1].features == {"kraft.version": SupportedLevels(0, 1)}
    assert again.topics.by_name["t"].partitions == image.topics.by_name["t"].partitions


def test_the_delta_names_what_was_there_before() -> None:
    """Changed partitions, settings and brokers come with their old value."""
    image = _full_image()
    old = image.topics.by_id[A].partitions[0]
    delta = image.apply(
        _records(
            kinds.PartitionChangeRecord(topic_id=A, partition_id=0, leader=-1),
            kinds.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
            kinds.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=1),
            kinds.FeatureLevelRecord(name="share.version", feature_level=1),
        ),
        END,
    )
    assert delta.partitions_changed == {A: {0: old}}
    assert image.topics.by_id[A].partitions[0].leader_epoch == old.leader_epoch + 1
    assert delta.configs_changed == {ConfiguredResource(2, "t"): {"retention.ms": "5"}}
    assert delta.brokers_changed[1] is not None
    assert image.cluster.brokers[1].fenced
    assert delta.features_changed == {"share.version": 0}


def test_a_topic_that_came_and_went_leaves_no_trace() -> None:
    """Created and deleted in one delta: no listener is affected (KAFKA-17190)."""
    image = _full_image()
    delta = image.apply(_topic("u", B) + _records(kinds.RemoveTopicRecord(topic_id=B)), END)
    assert delta.is_empty
    delta = image.apply(_records(kinds.RemoveTopicRecord(topic_id=A)), END)
    assert list(delta.topics_deleted) == [A]
    assert not image.configs.topic("t")


def test_every_kind_of_record_has_a_meaning() -> None:
    """The image knows every kind of record except transaction markers."""
    known = set(MetadataImage()._handlers)
    markers = {23, 24, 25}
    assert known == set(RECORD_CLASSES) - markers


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"\x01\x63\x00\x00", UnsupportedVersion),
        (b"\x01\x02\x09\x00", UnsupportedVersion),
        (b"\x02\x14\x00\x00", CorruptMessage),
        (b"\x01\x14\x00\x00\x00", CorruptMessage),
        (b"\x01", CorruptMessage),
        (None, CorruptMessage),
    ],
)
def test_what_is_not_understood_stops_the_replay(
    value: bytes | None, error: type[Exception]
) -> None:
    """An unknown kind or version is not skipped."""
    with pytest.raises(error):
        decode_record(value)


@given(st.binary(max_size=80))
def test_no_bytes_do_harm(value: bytes) -> None:
    """Arbitrary bytes are a record or raise an OttlaError."""
    with contextlib.suppress(KafkaError):
        decode_record(value)


def test_the_idle_record_is_known_by_its_bytes() -> None:
    """The shortcut for NoOp and the codec agree."""
    assert encode_record(MessageAndVersion(kinds.NoOpRecord(), 0)) == NO_OP_VALUE


def test_transactions_take_effect_at_their_end_or_never() -> None:
    """Records between the markers wait; an aborted transaction leaves no trace."""
    loader = MetadataLoader()
    delta = MetadataDelta()
    begin = _records(kinds.BeginTransactionRecord(name="n"))
    loader.load_batch(begin + _topic("t", A), END, delta)
    assert loader.in_transaction
    assert not loader.image.topics.by_id
    loader.load_batch(_records(kinds.EndTransactionRecord()), END, delta)
    assert list(loader.image.topics.by_name) == ["t"]
    loader.load_batch(begin + _topic("u", B), END, delta)
    loader.load_batch(_records(kinds.AbortTransactionRecord(reason="r")), END, delta)
    assert list(loader.image.topics.by_name) == ["t"]
    assert not loader.in_transaction


def test_listeners_get_everything_once_whenever_they_are_added() -> None:
    """Listeners added early and late both get the first state as a snapshot."""
    loader = MetadataLoader()
    heard: list[tuple[str, bool, list[Uuid]]] = []
    loader.add_listener(
        lambda delta, _image: heard.append(("early", delta.is_snapshot, list(delta.topics_created)))
    )
    delta = MetadataDelta()
    loader.load_batch(_topic("t", A), END, delta)
    loader.publish_from(delta, everything=True)
    loader.add_listener(
        lambda delta, _image: heard.append(("late", delta.is_snapshot, list(delta.topics_created)))
    )
    delta = MetadataDelta()
    loader.load_batch(_topic("u", B), END, delta)
    loader.publish_from(delta, everything=False)
    assert heard == [
        ("early", True, [A]),
        ("late", True, [A]),
        ("early", False, [B]),
        ("late", False, [B]),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "is_kept"),
    [
        (2, "retention.ms", True),
        (2, "message.format.version", False),
        (4, "message.format.version", True),
        (8, "retention.ms", False),
        (16, "interval.ms", True),
        (16, "retention.ms", False),
        (32, "consumer.session.timeout.ms", True),
        (32, "no.such", False),
    ],
)
def test_settings_that_do_not_exist_are_ignored(kind: int, name: str, *, is_kept: bool) -> None:
    """An upgraded cluster may have stored some; of brokers plugins may have any."""
    image = MetadataImage()
    record = kinds.ConfigRecord(resource_type=kind, resource_name="a", name=name, value="1")
    image.apply(_records(record), END)
    assert dict(image.configs.of(kind, "a")) == ({name: "1"} if is_kept else {})


def test_a_snapshot_makes_the_records_of_quotas_when_they_are_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100,000 limits are allowed, whose records would take hundreds of ms at once."""
    image = _full_image()
    made = 0

    def counted(**fields: object) -> kinds.ClientQuotaRecord:
        nonlocal made
        made += 1
        return kinds.ClientQuotaRecord(**fields)  # type: ignore[arg-type] # passed on

    counted.EntityData = kinds.ClientQuotaRecord.EntityData  # type: ignore[attr-defined] # as it
    monkeypatch.setattr("ottla.metadata.image.configs.ClientQuotaRecord", counted)
    records = image.records()
    assert made == 0
    image.quotas.by_entity.clear()
    quotas = [one for one, _ in records if isinstance(one, kinds.ClientQuotaRecord)]
    assert len(quotas) == made == 1
