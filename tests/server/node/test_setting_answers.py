"""A node's answers about resources with settings, producers and features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.describe import describe_topic
from ottla.controller.config_operations import ConfigOperation
from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.server.handlers import configs
from ottla.testing.cluster import Cluster
from tests.controller.harness import topic
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """Run a node with one topic, and settings of a group and of a subscription."""
    with Cluster() as cluster:
        peer = Peer(cluster.bootstrap)
        peer.ask(CreateTopicsRequest(topics=[topic("there")]), 7)
        for kind, name, key in (
            (GROUP, "g", "consumer.session.timeout.ms"),
            (METRICS, "m", "match"),
        ):
            value = "46000" if kind == GROUP else "client_id=a.*"
            assert alter(peer, kind, name, **{key: value}) == (0, None)
        yield peer


@pytest.fixture
def settings_cluster() -> Iterator[Cluster]:
    """Run a node that one test may change."""
    with Cluster() as cluster:
        yield cluster


def alter(peer: Peer, kind: int, name: str, **settings: str) -> tuple[int, str | None]:
    """Set settings; return code and text of the answer."""
    struct = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        struct.AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
        for key, value in settings.items()
    ]
    resource = struct(resource_type=kind, resource_name=name, configs=configs)
    answer = peer.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    ).responses[0]
    return answer.error_code, answer.error_message


def _listed(peer: Peer, *kinds: int) -> set[tuple[int, str]]:
    answer = peer.ask(ListConfigResourcesRequest(resource_types=list(kinds)), 1)
    assert answer.error_code == 0
    return {(one.resource_type, one.resource_name) for one in answer.config_resources}


def test_resources_are_listed_by_kind(peer: Peer) -> None:
    """Every kind alone, all together by default, and the old version that knew one."""
    every = {(TOPIC, "there"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")}
    assert _listed(peer) == every
    for kind, name in every:
        assert _listed(peer, kind) == {(kind, name)}
    old = peer.ask(ListConfigResourcesRequest(), 0)
    assert [one.resource_name for one in old.config_resources] == ["m"]


def test_an_unknown_kind_of_resource_is_refused(peer: Peer) -> None:
    """UNSUPPORTED_VERSION, and nothing is listed."""
    answer = peer.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 99]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == []


def _producers(peer: Peer, name: str, index: int) -> Any:
    struct = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[struct(name=name, partition_indexes=[index])])
    return peer.ask(request, 0).topics[0].partitions[0]


def test_producers_of_partitions_that_are_not_there(peer: Peer) -> None:
    """Text comes with an error of the topic, not with one of the partition."""
    assert _producers(peer, "there", 0).active_producers == []
    missing = _producers(peer, "there", 7)
    assert (missing.error_code, missing.error_message) == (3, None)
    unknown = _producers(peer, "nosuch", 0)
    assert (unknown.error_code, unknown.error_message) == (3, ErrorCode(3).text)
    assert _producers(peer, "bad*name", 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def _update(peer: Peer, name: str, level: int, *, only_check: bool, kind: int = 1) -> Any:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=kind
    )
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=only_check)
    return peer.ask(request, 2)


def test_a_checked_update_changes_nothing(peer: Peer) -> None:
    """validate_only tells what would happen; the level stays."""
    name = "eligible.leader.replicas.version"
    for _ in range(2):
        assert _update(peer, name, 0, only_check=True, kind=2).error_code == 0
    assert _update(peer, name, 0, only_check=True, kind=1).error_code != 0


@pytest.mark.parametrize(
    "pattern",
    ["client_id=a{99999999999999999999}", "client_id=" + "(" * 5000, "client_id=", "client_id=a=b"],
)
def test_an_illegal_pattern_of_clients_is_refused(peer: Peer, pattern: str) -> None:
    """What is no pair, too large or too deep gets an answer: the connection was closed."""
    code, text = alter(peer, METRICS, "m", match=pattern)
    assert code == ErrorCode.INVALID_CONFIG
    assert text == f"Illegal client matching pattern: {pattern}"


def test_what_topics_have_in_common_is_described_once(
    settings_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that names topics by the thousand holds the loop for few of them."""
    peer = Peer(settings_cluster.bootstrap)
    peer.ask(CreateTopicsRequest(topics=[topic("there"), topic("plain"), topic("short")]), 7)
    assert alter(peer, TOPIC, "short", **{"retention.ms": "77"}) == (0, None)
    made: list[object] = []

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return describe_topic(*arguments)

    monkeypatch.setattr(configs, "describe_topic", counted)
    struct = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            struct(resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"])
            for name in ["there", "plain", "short", "nosuch"] * 100
        ],
        include_synonyms=True,
        include_documentation=False,
    )
    results = peer.ask(request, 4).results
    assert len(made) == 2
    values = {one.resource_name: [it.value for it in one.configs] for one in results}
    assert values == {"there": ["604800000"], "plain": ["604800000"], "short": ["77"], "nosuch": []}
    assert {one.error_code for one in results} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
