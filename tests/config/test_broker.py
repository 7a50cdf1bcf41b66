"""A node's configuration as a whole."""

from __future__ import annotations

import pytest

from ottla.config.broker import (
    BrokerConfig,
    ListenerEndpoint,
    SecurityProtocol,
    parse_broker_config,
)
from ottla.config.broker.unsupported import unsupported_settings
from ottla.config.client import ConsumerConfig, ProducerConfig
from ottla.config.problems import ConfigErrors

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/data/a,/data/b",
}


def parse(**changes: str) -> BrokerConfig:
    """Parse a good node with some settings changed (`_` for `.`)."""
    return parse_broker_config(
        {**NODE, **{name.replace("_", "."): value for name, value in changes.items()}}
    )


def test_a_node_has_every_setting_as_an_attribute() -> None:
    """Given values are typed, the others are Kafka's defaults."""
    config = parse(num_io_threads="3")
    assert config.num_io_threads == 3
    assert config.num_network_threads == 3
    assert config.auto_create_topics_enable is True
    assert config.broker_id == config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.data_directories == ("/data/a", "/data/b")
    assert config.metadata_directory == "/data/a"
    assert parse(metadata_log_dir="/meta").metadata_directory == "/meta"


def test_listeners_are_typed() -> None:
    """Controllers of an unsecured node need no entry in the security map."""
    config = parse()
    client, controller = config.endpoints
    assert client == ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092, SecurityProtocol.PLAINTEXT)
    assert str(controller) == "CONTROLLER://127.0.0.1:9093"
    assert config.broker_endpoints == config.advertised_endpoints == (client,)
    assert config.controller_endpoints == (controller,)
    assert config.inter_broker_endpoint_name == "PLAINTEXT"


def test_own_listener_names_need_the_map() -> None:
    """A listener of any name has the security that the map gives it."""
    config = parse(
        listeners="INSIDE://:19092,OUTSIDE://[::1]:0,CONTROLLER://:9093",
        advertised_listeners="INSIDE://a.example:1,OUTSIDE://b.example:2",
        listener_security_protocol_map="INSIDE:PLAINTEXT,outside:ssl,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    assert config.endpoints[1] == ListenerEndpoint("OUTSIDE", "::1", 0, SecurityProtocol.SSL)
    assert str(config.endpoints[1]) == "OUTSIDE://[::1]:0"
    assert [one.port for one in config.advertised_endpoints] == [1, 2]


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_goes_by_the_finest_unit(given: dict[str, str], milliseconds: int) -> None:
    """Ms wins over minutes, minutes over hours."""
    assert parse_broker_config({**NODE, **given}).retention_time_ms == milliseconds


def test_roll_and_flush_times_resolve_too() -> None:
    """The other chains of synonyms work the same way."""
    config = parse(log_roll_hours="2", log_roll_jitter_ms="5", log_flush_scheduler_interval_ms="7")
    assert config.roll_time_ms == 7_200_000
    assert config.roll_jitter_time_ms == 5
    assert config.flush_time_ms == 7


def test_all_problems_are_reported_at_once() -> None:
    """Wrong values, wrong addresses and broken rules make one exception."""
    with pytest.raises(ConfigErrors) as caught:
        parse(num_io_threads="0", listeners="x", log_roll_ms="0", replica_lag_time_max_ms="1")
    assert [problem.name for problem in caught.value.problems] == [
        "num.io.threads",
        "listeners",
        "log.roll.ms",
        "replica.fetch.wait.max.ms",
    ]


def test_an_empty_file_names_what_is_required() -> None:
    """Each required setting is reported without follow-up errors."""
    with pytest.raises(ConfigErrors) as caught:
        parse_broker_config({})
    assert sorted(problem.message for problem in caught.value.problems) == [
        f'Missing required configuration "{name}" which has no default value.'
        for name in ("controller.listener.names", "node.id", "process.roles")
    ]


def test_unknown_names_are_listed_with_the_nearest() -> None:
    """An unknown name does not stop a node; names of plug-ins and listeners are accepted."""
    config = parse_broker_config(
        {
            **NODE,
            "num.network.thread": "1",
            "listener.name.inside.ssl.key.password": "x",
            "rsm.config.bucket": "x",
        }
    )
    (problem,) = config.unknown_settings
    assert problem.message == (
        "Unknown configuration num.network.thread; did you mean num.network.threads?"
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"client.quota.callback.class": "x.Y"}, "client.quota.callback.class"),
    ],
)
def test_unsupported_features_are_named(given: dict[str, str], name: str) -> None:
    """A setting of an unimplemented feature is valid, but listed so that the start is refused."""
    found = unsupported_settings(parse_broker_config({**NODE, **given}))
    assert [problem.name for problem in found] == [name]


def test_settings_of_remote_metadata_come_after_their_prefix() -> None:
    """Kafka's defaults; the prefix is a setting itself."""
    metadata = parse().remote_metadata
    assert metadata.remote_log_metadata_topic_num_partitions == 50
    assert metadata.remote_log_metadata_topic_replication_factor == 3
    assert metadata.remote_log_metadata_topic_min_isr == 2
    given = {
        "remote.log.metadata.manager.impl.prefix": "tiers.",
        "tiers.remote.log.metadata.topic.num.partitions": "5",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "6",
    }
    config = parse_broker_config({**NODE, **given})
    assert config.remote_metadata.remote_log_metadata_topic_num_partitions == 5


def test_settings_of_remote_metadatas_clients_are_a_clients_own_over_those_of_all() -> None:
    """Only such names and the topic's own are known after the prefix."""
    prefix = "rlmm.config.remote.log.metadata."
    given = {
        f"{prefix}common.client.retry.backoff.ms": "10",
        f"{prefix}common.client.fetch.max.bytes": "7",
        f"{prefix}consumer.retry.backoff.ms": "20",
        f"{prefix}topic.num.partitons": "5",
    }
    config = parse_broker_config({**NODE, **given})
    consumer = config.remote_metadata_client(ConsumerConfig, "consumer")
    producer = config.remote_metadata_client(ProducerConfig, "producer")
    assert (producer.retry_backoff_ms, consumer.retry_backoff_ms) == (10, 20)
    assert consumer.fetch_max_bytes == 7
    (misspelt,) = config.unknown_settings
    assert misspelt.name == f"{prefix}topic.num.partitons"
    assert "did you mean rlmm.config.remote.log.metadata.topic.num.partitions?" in misspelt.message


def test_a_single_node_needs_no_unsupported_feature() -> None:
    """The common single node starts."""
    assert not list(unsupported_settings(parse()))


def test_stored_changes_go_over_the_file() -> None:
    """A node's own change wins over the cluster's, both over the file; a broken one is skipped."""
    config = parse(num_io_threads="3")
    changed = config.with_dynamic(
        {"num.io.threads": "4", "log.segment.bytes": "2000000", "num.network.threads": "no"},
        {"num.io.threads": "5"},
    )
    assert (changed.num_io_threads, changed.log_segment_bytes) == (5, 2_000_000)
    assert changed.num_network_threads == 3
    assert changed.given == config.given
    assert config.num_io_threads == 3
