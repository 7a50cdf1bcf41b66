"""DescribeConfigs of a real node against what our tables say of the same configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, KafkaError
from ottla.clients.admin.configs import AlterOperation, ConfigChange, ConfigResource, ResourceType
from ottla.config.broker import parse_broker_config
from ottla.config.describe import (
    BrokerSources,
    DescribedSetting,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.config.topic import parse_topic_config
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance

OWN = {"num.io.threads": "5", "log.cleaner.threads": "2"}
CLUSTER = {"log.retention.ms": "700000", "num.io.threads": "4"}
TOPIC = {"retention.ms": "5000000", "cleanup.policy": "compact,delete"}
GROUP = {"share.delivery.count.limit": "7", "consumer.session.timeout.ms": "46000"}


@pytest.fixture(scope="module")
def admin(real_kafka: RealKafka) -> Iterator[Admin]:
    """Store changes of every kind on the node, and take those of brokers away afterwards."""
    with Admin(bootstrap_servers=real_kafka.bootstrap) as admin:
        admin.create_topic("described", configs=TOPIC)
        broker, cluster = _broker("1"), _broker("")
        changes: dict[ConfigResource, Any] = {broker: OWN, cluster: CLUSTER}
        changes[ConfigResource(ResourceType.GROUP, "described")] = GROUP
        assert set(admin.alter_configs(changes).values()) == {None}
        _wait_until_applied(admin, broker)
        yield admin
        gone = AlterOperation.DELETE
        deletions = {broker: OWN, cluster: CLUSTER}
        admin.alter_configs({
            resource: [ConfigChange(name, None, gone) for name in names]
            for resource, names in deletions.items()
        })  # fmt: skip


def _wait_until_applied(admin: Admin, broker: ConfigResource) -> None:
    """Wait for the node: Kafka tells the source of a change before it uses the value."""
    requested = {**CLUSTER, **OWN}

    def is_applied() -> bool:
        (entries,) = admin.describe_configs([broker]).values()
        assert not isinstance(entries, KafkaError)
        return all(entries[name].value == text for name, text in requested.items())

    wait_for(is_applied, problem="the node did not take the changes over")


def _broker(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, name)


@pytest.fixture(scope="module")
def sources(real_kafka: RealKafka) -> BrokerSources:
    """Read the same configuration; with ELR the cluster keeps min.insync.replicas."""
    static = parse_broker_config(real_kafka.properties)
    cluster = {**CLUSTER, "min.insync.replicas": "1"}
    return BrokerSources(static.with_dynamic(cluster, OWN), OWN, cluster)


def _theirs(admin: Admin, resource: ConfigResource) -> dict[str, Any]:
    (entries,) = admin.describe_configs([resource], include_synonyms=True).values()
    assert isinstance(entries, dict), entries
    return {
        name: (
            one.value,
            one.is_read_only,
            int(one.source),
            one.is_sensitive,
            one.type,
            [(synonym.name, synonym.value, int(synonym.source)) for synonym in one.synonyms],
        )
        for name, one in entries.items()
    }


def _ours(entries: Iterable[DescribedSetting]) -> dict[str, Any]:
    return {
        one.name: (
            one.value,
            one.read_only,
            one.source.value,
            one.sensitive,
            one.type,
            [(synonym.name, synonym.value, synonym.source.value) for synonym in one.synonyms],
        )
        for one in entries
    }


def _compare(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert sorted(ours) == sorted(theirs)
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    assert not different


def test_a_broker(admin: Admin, sources: BrokerSources) -> None:
    """Every setting of a broker has the same value, source, type and synonyms."""
    _compare(_ours(describe_broker(sources)), _theirs(admin, _broker("1")))


def test_the_clusters_default(admin: Admin, sources: BrokerSources) -> None:
    """Settings of all brokers are described alike."""
    _compare(_ours(describe_cluster_default(sources)), _theirs(admin, _broker("")))


def test_a_topic(admin: Admin, sources: BrokerSources) -> None:
    """Every setting of a topic has the same value, source, type and synonyms."""
    topic = parse_topic_config(TOPIC, sources.config)
    resource = ConfigResource(ResourceType.TOPIC, "described")
    _compare(_ours(describe_topic(topic, sources)), _theirs(admin, resource))


def test_a_group(admin: Admin, sources: BrokerSources) -> None:
    """Every setting of a group has the same value, source, type and synonyms."""
    resource = ConfigResource(ResourceType.GROUP, "described")
    _compare(_ours(describe_group(GROUP, sources)), _theirs(admin, resource))
