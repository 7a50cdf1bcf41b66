"""The records between two images: applied to one of them, they give the other."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.config.broker import parse_broker_config
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.metadata.image import MetadataImage
from ottla.metadata.image.image import records_between
from ottla.protocol.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ottla.quota.quotas import Quotas
from ottla.security.authorizer import StandardAuthorizer
from ottla.server.node.plugins import AclPublisher
from ottla.server.node.settings import development_defaults
from ottla.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.protocol.schema import Struct

END = OffsetAndEpoch(9, 1)
Entity = ClientQuotaRecord.EntityData


def _image(rng: Random) -> MetadataImage:
    """Return an image of a small random cluster."""
    records: list[Struct] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    if rng.random() < 0.5:
        records.append(FeatureLevelRecord(name="group.version", feature_level=1))
    records += [_broker(broker_id, rng) for broker_id in rng.sample(range(5), 3)]
    for number in rng.sample(range(6), 4):
        topic_id = Uuid(bytes([number, rng.randrange(2)]) * 8)
        records.append(TopicRecord(name=f"t{number}", topic_id=topic_id))
        records += [_partition(topic_id, index, rng) for index in range(2)]
        records.append(
            ConfigRecord(
                resource_type=2,
                resource_name=f"t{number}",
                name="retention.ms",
                value=str(rng.randrange(2)),
            )
        )
    for user in rng.sample("abc", 2):
        entity = [Entity(entity_type="user", entity_name=user)]
        limit = float(rng.randrange(1, 3))
        records.append(
            ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=limit, remove=False)
        )
        records.append(
            UserScramCredentialRecord(
                name=user,
                mechanism=1,
                salt=b"s",
                stored_key=bytes([rng.randrange(2)]),
                server_key=b"k",
                iterations=4096,
            )
        )
    records += [_acl(number, rng) for number in rng.sample(range(6), 4)]
    records += [
        ConfigRecord(
            resource_type=4,
            resource_name=str(broker_id),
            name="leader.replication.throttled.rate",
            value=str(rng.randrange(1, 3)),
        )
        for broker_id in rng.sample(range(5), 2)
    ]
    records.append(ProducerIdsRecord(broker_id=1, next_producer_id=rng.randrange(3) * 1000))
    image = MetadataImage()
    image.apply([MessageAndVersion(record, _version(record)) for record in records], END)
    return image


def _acl(number: int, rng: Random) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(bytes([number]) * 16),
        resource_type=2,
        resource_name=rng.choice(("t", "t1")),
        pattern_type=rng.choice((3, 4)),
        principal=f"User:{rng.choice('abc')}",
        host="*",
        operation=rng.choice((3, 4)),
        permission_type=rng.choice((2, 3)),
    )


def _broker(broker_id: int, rng: Random) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([rng.randrange(2)]) * 16),
        broker_epoch=rng.randrange(3),
        end_points=[],
        features=[],
        rack=None,
        fenced=rng.random() < 0.5,
    )


def _partition(topic_id: Uuid, index: int, rng: Random) -> PartitionRecord:
    leader = rng.randrange(3)
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=[leader],
        isr=[leader],
        removing_replicas=[],
        adding_replicas=[],
        leader=leader,
        leader_epoch=rng.randrange(2),
        partition_epoch=0,
    )


def _version(record: Struct) -> int:
    return 3 if isinstance(record, RegisterBrokerRecord) else 0


def _difference(old: MetadataImage, new: MetadataImage) -> list[MessageAndVersion]:
    return [record for record in records_between(old, new) if record is not None]


def _content(image: MetadataImage) -> list[bytes]:
    return sorted(encode_record(record) for record in image.records())


def test_the_difference_turns_one_image_into_the_other() -> None:
    """Whatever was added, changed, removed or made again under the same name."""
    for seed in range(60):
        rng = Random(seed)
        old, new = _image(rng), _image(rng)
        expected = _content(new)
        old.apply(_difference(old, new), END)
        assert _content(old) == expected


def test_equal_images_have_no_difference() -> None:
    """Nothing is told again to listeners."""
    assert _difference(_image(Random(1)), _image(Random(1))) == []


def test_the_delta_of_everything_is_that_from_an_empty_image() -> None:
    """A listener that comes late hears the same as one that was there from the start."""
    for seed in range(30):
        image = _image(Random(seed))
        first = MetadataImage().apply(image.records(), image.offset_and_epoch)
        late = image.everything()
        assert late.is_snapshot
        for name in set(MetadataDelta.__slots__) - {"is_snapshot", "topics_created"}:
            one, other = getattr(late, name), getattr(first, name)
            assert one == other, name
            if isinstance(one, dict):
                assert list(one) == list(other), name
        assert late.topics_created == image.topics.by_id


def test_a_registered_controller_stays() -> None:
    """There is no record that removes one; a snapshot of the same cluster has it as well."""
    old = MetadataImage()
    record = RegisterControllerRecord(
        controller_id=1,
        incarnation_id=Uuid(b"i" * 16),
        zk_migration_ready=False,
        end_points=[],
        features=[],
    )
    old.apply([MessageAndVersion(record, 0)], END)
    new = MetadataImage()
    new.apply(old.records(), END)
    assert _difference(old, new) == []


class Derived:
    """What a broker derives from the metadata, change by change."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.authorizer = StandardAuthorizer()
        self.quotas = Quotas(parse_broker_config(development_defaults()))
        self._acls = AclPublisher(self.authorizer)

    def apply(self, records: Iterable[MessageAndVersion]) -> None:
        """Apply records of the log as one delta."""
        self.hear(self.image.apply(list(records), END))

    def hear(self, delta: MetadataDelta) -> None:
        """Let the listeners hear of a change."""
        self._acls.metadata_changed(delta, self.image)
        self.quotas.metadata_changed(delta, self.image)

    def state(self) -> dict[str, Any]:
        """Return all that may be asked, and the tables that answers are found in."""
        authorizer, quotas = self.authorizer, self.quotas
        return {
            "records": _content(self.image),
            "acls": (
                authorizer._by_id,
                authorizer._literal,
                authorizer._prefixed,
                {kind: dict(sizes) for kind, sizes in authorizer._lengths.items() if sizes},
            ),
            "quotas": {
                user: found and found.limit
                for user in "abcd"
                for found in (quotas.produced.find(user, "c", 0),)
            },
            "is_on": quotas.is_on,
            "concerned": [quotas.concerns(user, "c") for user in "abcd"],
            "rates": (quotas.replication.leader.limit, quotas.replication.follower.limit),
        }


def test_a_snapshot_and_the_rest_of_the_log_make_what_the_whole_log_makes() -> None:
    """The image, and what a broker derives from it: entries of the authorizer, limits, rates."""
    for seed in range(60):
        rng = Random(seed)
        live, images = Derived(), [MetadataImage(), *(_image(rng) for _ in range(5))]
        log = [_difference(old, new) for old, new in pairwise(images)]
        snapshot_at = rng.randrange(len(log))
        started = Derived()
        for number, records in enumerate(log):
            live.apply(records)
            live.state()  # fills the caches of answers
            if number == snapshot_at:
                started.apply(live.image.records())
            elif number > snapshot_at:
                started.apply(records)
        assert started.state() == live.state(), f"seed {seed}"
        late = Derived()
        late.image = live.image
        late.hear(live.image.everything())
        assert late.state() == live.state(), f"seed {seed}"
