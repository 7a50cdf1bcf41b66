"""Settings in DescribeConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.broker import parse_broker_config
from ottla.config.describe import (
    BrokerSources,
    DescribedSetting,
    Source,
    Synonym,
    broker_synonyms,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla.config.topic import parse_topic_config
from tests.config.test_broker import NODE

if TYPE_CHECKING:
    from collections.abc import Iterable

OWN = {"num.io.threads": "5"}
CLUSTER = {"num.io.threads": "4", "log.retention.ms": "7"}
STATIC = parse_broker_config({**NODE, "num.io.threads": "3", "my.plugin": "secret?"})
SOURCES = BrokerSources(STATIC.with_dynamic(CLUSTER, OWN), OWN, CLUSTER)


def one(entries: Iterable[DescribedSetting]) -> DescribedSetting:
    """Return the only entry."""
    (entry,) = entries
    return entry


def test_a_broker_setting_lists_all_its_sources() -> None:
    """The source of highest precedence gives the value, the others follow as synonyms."""
    entry = one(describe_broker(SOURCES, ["num.io.threads"]))
    assert (entry.value, entry.source, entry.read_only) == (
        "5",
        Source.DYNAMIC_BROKER_CONFIG,
        False,
    )
    assert [(synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("5", "DYNAMIC_BROKER_CONFIG"),
        ("4", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("3", "STATIC_BROKER_CONFIG"),
        ("8", "DEFAULT_CONFIG"),
    ]


def test_all_public_settings_and_foreign_names_are_described() -> None:
    """340 public settings, and other given names, whose values may be secrets."""
    entries = list(describe_broker(SOURCES))
    assert len(entries) == 341
    foreign = entries[0]
    assert (foreign.name, foreign.value, foreign.sensitive) == ("my.plugin", None, True)
    assert foreign.type == 0


def test_a_secret_has_no_value() -> None:
    """Passwords are sensitive and empty, in synonyms too."""
    sources = BrokerSources(parse_broker_config({**NODE, "ssl.key.password": "hush"}), {}, {})
    entry = one(describe_broker(sources, ["ssl.key.password"]))
    assert entry.sensitive
    assert entry.value is None
    assert entry.synonyms == (Synonym("ssl.key.password", None, Source.STATIC_BROKER_CONFIG),)


def test_the_clusters_changes_stand_alone() -> None:
    """The default broker resource has only what was stored for all brokers."""
    entries = list(describe_cluster_default(SOURCES))
    assert [(entry.name, entry.value) for entry in entries] == [
        ("num.io.threads", "4"),
        ("log.retention.ms", "7"),
    ]
    assert {entry.source for entry in entries} == {Source.DYNAMIC_DEFAULT_BROKER_CONFIG}


def test_a_topic_setting_names_the_brokers() -> None:
    """The topic's own value is followed by the broker's synonyms and the default."""
    topic = parse_topic_config({"retention.ms": "5"}, SOURCES.config)
    own = one(describe_topic(topic, SOURCES, ["retention.ms"]))
    assert own.source is Source.TOPIC_CONFIG
    assert own.synonyms == (
        Synonym("retention.ms", "5", Source.TOPIC_CONFIG),
        Synonym("log.retention.ms", "7", Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", Source.DEFAULT_CONFIG),
    )
    plain = one(describe_topic(topic, SOURCES, ["cleanup.policy"]))
    assert (plain.value, plain.source) == ("delete", Source.DEFAULT_CONFIG)
    assert plain.synonyms == (Synonym("log.cleanup.policy", "delete", Source.DEFAULT_CONFIG),)
    assert len(list(describe_topic(topic, SOURCES))) == 33


def test_groups_and_metrics_subscriptions() -> None:
    """A group falls back to the broker; a subscription only has its own settings."""
    entries = {
        entry.name: entry for entry in describe_group({"share.delivery.count.limit": "7"}, SOURCES)
    }
    assert len(entries) == 17
    assert entries["share.delivery.count.limit"].source is Source.GROUP_CONFIG
    assert entries["consumer.session.timeout.ms"].value == "45000"
    assert entries["share.isolation.level"].source is Source.DEFAULT_CONFIG
    metrics = {entry.name: entry for entry in describe_client_metrics({"interval.ms": "100"})}
    assert metrics["interval.ms"].source is Source.CLIENT_METRICS_CONFIG


def test_chains_and_listener_names() -> None:
    """Units of one time belong together; a listener's own setting falls back to the common one."""
    assert broker_synonyms("log.roll.hours") == ("log.roll.ms", "log.roll.hours")
    assert broker_synonyms("log.flush.interval.ms")[1] == "log.flush.scheduler.interval.ms"
    assert broker_synonyms("listener.name.x.ssl.protocol") == (
        "listener.name.x.ssl.protocol",
        "ssl.protocol",
    )


def test_ottlas_own_settings_have_their_source() -> None:
    """They are not sensitive and read-only."""
    given = {**NODE, "producer.states.max": "5"}
    entry = one(
        describe_broker(BrokerSources(parse_broker_config(given), {}, {}), ["producer.states.max"])
    )
    assert (entry.value, entry.read_only, entry.sensitive) == ("5", True, False)
    assert entry.source is Source.STATIC_BROKER_CONFIG
