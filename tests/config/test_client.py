"""The settings of clients and of groups."""

from __future__ import annotations

import pytest

from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.group import ClientMetricsConfig, GroupConfig
from ottla.config.problems import ConfigErrors

SERIALIZERS = {"key.serializer": "bytes", "value.serializer": "bytes"}


def test_defaults_of_a_producer() -> None:
    """A producer waits for all replicas, lingers 5 ms and is idempotent."""
    config = ProducerConfig.parse({"bootstrap.servers": "a:1,b:2", **SERIALIZERS})
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert (config.acks, config.linger_ms, config.enable_idempotence) == ("all", 5, True)


def test_defaults_differ_between_clients() -> None:
    """The same name can have another default in another client."""
    assert AdminConfig.keys["connections.max.idle.ms"].default == 300_000
    assert ConsumerConfig.keys["connections.max.idle.ms"].default == 540_000
    assert ConsumerConfig.keys["max.poll.records"].default == 500


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        ("earliest", True),
        ("by_duration:PT1H30M", True),
        ("by_duration:P1DT0.5S", True),
        ("by_duration:", False),
        ("by_duration:P", False),
        ("by_duration:PT", False),
        ("by_duration:-PT1H", False),
        ("by_duration:P1Y", False),
        ("smallest", False),
    ],
)
def test_where_a_consumer_starts(text: str, *, legal: bool) -> None:
    """A word, or a time before now in days, hours, minutes and seconds."""
    reading = ConsumerConfig.definitions.read({"auto.offset.reset": text})
    assert ("auto.offset.reset" not in {one.name for one in reading.problems}) is legal


def test_group_settings() -> None:
    """Groups have 17 settings of their own, a metrics subscription three."""
    assert len(GroupConfig.keys) == 17
    assert len(ClientMetricsConfig.keys) == 3
    with pytest.raises(ConfigErrors, match="earliest"):
        GroupConfig.parse({"share.auto.offset.reset": "none"})
