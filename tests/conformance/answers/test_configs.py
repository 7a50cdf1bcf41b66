"""Settings described and changed through real Kafka 4.3.0 and through Ottla: the same answers.

Kafka: KafkaApis.handleListConfigResources, ConfigHelper, ConfigAdminManager, ControllerApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.controller.config_operations import ConfigOperation
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.list_config_resources import ListConfigResourcesRequest
from tests.conformance.applied import wait_until_applied
from tests.conformance.pair import Pair, running_pair
from tests.controller.harness import incremental_change, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both, with one topic, one group and one subscription that have settings."""
    with running_pair(kafka, tmp_path_factory.mktemp("configs")) as pair:
        pair.compare(
            CreateTopicsRequest(topics=[topic("set", retention_ms="5000000")]),
            incremental_change(GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")),
            incremental_change(
                METRICS, "m", ("metrics", SET, "org.apache."), ("interval.ms", SET, "1000")
            ),
            incremental_change(
                BROKER,
                "1",
                ("log.cleaner.threads", SET, "2"),
                ("listener.name.external.ssl.key.password", SET, "secret"),
                ("listener.name.external.ssl.keystore.location", SET, "/x"),
                ("listener.name.plaintext.max.connections", SET, "500"),
                ("nobodys.setting", SET, "1"),
            ),
            incremental_change(BROKER, "", ("log.retention.ms", SET, "700000")),
        )
        wait_until_applied(pair.theirs.ask)  # Kafka describes a value's source before its use
        yield pair


def replace(
    kind: int, name: str, *settings: tuple[str, str | None], only_check: bool = False
) -> AlterConfigsRequest:
    struct = AlterConfigsRequest.AlterConfigsResource
    resource = struct(
        resource_type=kind,
        resource_name=name,
        configs=[struct.AlterableConfig(name=key, value=value) for key, value in settings],
    )
    return AlterConfigsRequest(resources=[resource], validate_only=only_check)


def describe(kind: int, name: str, *names: str, synonyms: bool = True) -> DescribeConfigsRequest:
    struct = DescribeConfigsRequest.DescribeConfigsResource
    resource = struct(
        resource_type=kind, resource_name=name, configuration_keys=list(names) or None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def _listed(answer: Any) -> Any:
    if answer is None:
        return None
    return answer.error_code, sorted(
        (one.resource_type, one.resource_name) for one in answer.config_resources
    )


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        (0, []),
        *((1, [kind]) for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP, 0, 99)),
        (1, []),
        (1, [TOPIC, GROUP]),
        (1, [TOPIC, 99]),
        (1, [TOPIC, TOPIC]),
    ],
)
def test_resources_with_settings(pair: Pair, version: int, kinds: list[int]) -> None:
    """Each kind of resource, all of them, unknown kinds, and the version that knew one kind."""
    theirs, ours = pair.ask(ListConfigResourcesRequest(resource_types=kinds), version)
    assert _listed(ours) == _listed(theirs)


def _described(answer: Any) -> Any:
    """Return everything but the documentation's words, which are each one's own."""
    return [
        (
            one.error_code,
            one.error_message,
            one.resource_type,
            one.resource_name,
            {
                config.name: (
                    config.value,
                    config.read_only,
                    config.config_source,
                    config.is_sensitive,
                    config.config_type,
                    [(two.name, two.value, two.source) for two in config.synonyms],
                    config.documentation is None,
                )
                for config in one.configs
            },
        )
        for one in answer.results
    ]


OWN_NAMES = {
    "listeners",
    "advertised.listeners",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
    "log.dir",
    "controller.quorum.voters",
}
"""Settings of which each of the two nodes has its own value."""


@pytest.mark.parametrize("synonyms", [True, False])
@pytest.mark.parametrize("documentation", [True, False])
@pytest.mark.parametrize(
    "requested",
    [
        (TOPIC, "set"),
        (TOPIC, "nosuch"),
        (TOPIC, ""),
        (TOPIC, "bad*name"),
        (TOPIC, "set", "retention.ms", "segment.ms", "nosuch"),
        (BROKER, "1", "log.cleaner.threads", "log.retention.ms", "ssl.key.password", "nope"),
        (BROKER, "1"),
        (BROKER, ""),
        (BROKER, "", "log.retention.ms"),
        (BROKER, "7"),
        (BROKER, "x"),
        (GROUP, "g"),
        (GROUP, "other"),
        (GROUP, ""),
        (METRICS, "m"),
        (METRICS, "other"),
        (METRICS, ""),
        (LOGGER, ""),
        (LOGGER, "7"),
        (LOGGER, "x"),
        (99, "x"),
        (0, "x"),
    ],
    ids=str,
)
def test_descriptions(
    pair: Pair, requested: tuple[Any, ...], *, synonyms: bool, documentation: bool
) -> None:
    """Values, sources, synonyms, types; which settings have documentation; every refusal."""
    request = describe(*requested, synonyms=synonyms)
    request.include_documentation = documentation
    theirs, ours = (_described(answer) for answer in pair.ask(request))
    for results in (theirs, ours):
        for name in OWN_NAMES & results[0][-1].keys():
            results[0][-1][name] = None
    different = {
        name: (ours[0][-1].get(name), theirs[0][-1].get(name))
        for name in ours[0][-1].keys() | theirs[0][-1].keys()
        if ours[0][-1].get(name) != theirs[0][-1].get(name)
    }
    assert not different
    assert ours == theirs


def _other_listener(protocols: str, *more: tuple[str, int, str | None]) -> Request:
    """Return a check of one listener more, and of more settings."""
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0,OTHER://127.0.0.1:0"
    return incremental_change(
        BROKER,
        "1",
        ("listeners", SET, listeners),
        ("listener.security.protocol.map", SET, protocols),
        *more,
        only_check=True,
    )


CHANGES: list[Request] = [
    incremental_change(LOGGER, "", ("root", SET, "INFO")),
    incremental_change(LOGGER, "7", ("root", SET, "INFO")),
    incremental_change(LOGGER, "x", ("root", SET, "INFO")),
    incremental_change(LOGGER, "1", ("root", SET, "LOUD")),
    incremental_change(LOGGER, "1", ("root", SET, "info")),
    incremental_change(LOGGER, "1", ("root", SET, None)),
    incremental_change(LOGGER, "1", ("root", SET, "")),
    incremental_change(LOGGER, "1", ("root", DELETE, None)),
    incremental_change(LOGGER, "1", ("root", APPEND, "INFO")),
    incremental_change(LOGGER, "1", ("root", SUBTRACT, "INFO")),
    incremental_change(LOGGER, "1", ("root", 7, "INFO")),
    incremental_change(LOGGER, "1", ("no.such.logger", SET, "INFO")),
    incremental_change(LOGGER, "1", ("no.such.logger", DELETE, None)),
    incremental_change(LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "WARN")),
    incremental_change(LOGGER, "1", ("root", SET, "INFO"), ("no.such.logger", SET, "WARN")),
    incremental_change(LOGGER, "1", ("root", SET, "WARN"), only_check=True),
    incremental_change(LOGGER, "1"),
    replace(LOGGER, "1", ("root", "INFO")),
    replace(LOGGER, "7", ("root", "INFO")),
    incremental_change(TOPIC, "set", ("retention.ms", SET, "1"), only_check=True),
    incremental_change(TOPIC, "set", ("retention.ms", 9, "1")),
    incremental_change(TOPIC, "set", ("retention.ms", SET, "-7")),
    incremental_change(TOPIC, "set", ("nosuch", SET, "1")),
    incremental_change(TOPIC, "set", ("nosuch", DELETE, None)),
    incremental_change(TOPIC, "set"),
    incremental_change(TOPIC, "bad*name", ("retention.ms", SET, "1")),
    incremental_change(BROKER, "1", ("num.io.threads", SET, "1")),
    incremental_change(BROKER, "1", ("num.io.threads", SET, "100")),
    incremental_change(BROKER, "1", ("num.io.threads", SET, "0")),
    incremental_change(BROKER, "1", ("num.io.threads", SET, "x")),
    incremental_change(BROKER, "", ("num.network.threads", SET, "2"), only_check=True),
    incremental_change(BROKER, "", ("num.network.threads", SET, "4"), only_check=True),
    incremental_change(BROKER, "1", ("background.threads", SET, "200")),
    incremental_change(BROKER, "1", ("num.replica.fetchers", SET, "3")),
    incremental_change(BROKER, "1", ("num.recovery.threads.per.data.dir", SET, "9")),
    incremental_change(BROKER, "1", ("log.cleaner.threads", SET, "9")),
    incremental_change(BROKER, "1", ("log.cleaner.dedupe.buffer.size", SET, "1000")),
    incremental_change(BROKER, "1", ("max.connections", SET, "-1")),
    incremental_change(BROKER, "", ("max.connections.per.ip", SET, "0"), only_check=True),
    incremental_change(
        BROKER, "", ("max.connections.per.ip.overrides", SET, "a:b:c"), only_check=True
    ),
    incremental_change(
        BROKER, "", ("max.connections.per.ip.overrides", SET, "127.0.0.1:x"), only_check=True
    ),
    incremental_change(
        BROKER, "", ("max.connections.per.ip.overrides", SET, "127.0.0.1:5"), only_check=True
    ),
    incremental_change(BROKER, "1", ("auto.create.topics.enable", SET, "false")),
    incremental_change(BROKER, "", ("auto.create.topics.enable", SET, "false")),
    incremental_change(BROKER, "1", ("nosuch.setting", SET, "1"), only_check=True),
    incremental_change(BROKER, "1", ("ssl.keystore.location", SET, "/x")),
    incremental_change(
        BROKER, "1", ("listener.name.external.ssl.keystore.location", SET, "/x"), only_check=True
    ),
    incremental_change(
        BROKER, "", ("listener.name.plaintext.max.connections", SET, "10"), only_check=True
    ),
    incremental_change(
        BROKER, "1", ("listener.name.plaintext.max.connections", SET, "10"), only_check=True
    ),
    incremental_change(BROKER, "1", ("metric.reporters", SET, "no.such.Reporter")),
    incremental_change(BROKER, "", ("metric.reporters", APPEND, "no.such.Reporter")),
    incremental_change(BROKER, "1", ("cordoned.log.dirs", SET, "/nosuch")),
    incremental_change(BROKER, "", ("cordoned.log.dirs", SET, "*")),
    incremental_change(BROKER, "1", ("listeners", SET, "PLAINTEXT://:1")),
    incremental_change(BROKER, "1", ("listeners", SET, "nonsense")),
    _other_listener("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"),
    _other_listener(
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
        ("listener.name.plaintext.connections.max.reauth.ms", SET, "5"),
    ),
    _other_listener("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    _other_listener("PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"),
    incremental_change(
        BROKER, "1", ("listeners", SET, "OTHER://127.0.0.1:0,CONTROLLER://127.0.0.1:0")
    ),
    incremental_change(
        BROKER,
        "1",
        ("listener.name.plaintext.connections.max.reauth.ms", SET, "5"),
        only_check=True,
    ),
    incremental_change(BROKER, "1", ("unclean.leader.election.enable", SET, "maybe")),
    incremental_change(
        BROKER, "", ("unclean.leader.election.enable", SET, "true"), only_check=True
    ),
    incremental_change(BROKER, "1", ("log.retention.ms", SET, "0")),
    incremental_change(BROKER, "1", ("log.local.retention.ms", SET, "5")),
    incremental_change(BROKER, "1", ("log.message.timestamp.type", SET, "Sometimes")),
    incremental_change(BROKER, "1", ("min.insync.replicas", SET, "2")),
    incremental_change(BROKER, "", ("min.insync.replicas", SET, "0")),
    incremental_change(
        BROKER, "", ("leader.replication.throttled.rate", SET, "5"), only_check=True
    ),
    incremental_change(BROKER, "1", ("leader.replication.throttled.rate", SET, "-5")),
    incremental_change(BROKER, "1", ("config.providers", SET, "file"), only_check=True),
    replace(BROKER, "1", ("log.cleaner.threads", "9")),
    replace(BROKER, "1", ("log.cleaner.threads", None)),
    replace(BROKER, "7", ("log.cleaner.threads", "2")),
    replace(TOPIC, "nosuch", ("retention.ms", "5")),
    replace(TOPIC, "set", ("retention.ms", None)),
    replace(TOPIC, "set", ("retention.ms", "5"), ("retention.ms", "6")),
    replace(99, "set", ("retention.ms", "5")),
    incremental_change(GROUP, "g", ("share.isolation.level", SET, "all"), only_check=True),
    incremental_change(
        GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "60000"), only_check=True
    ),
    incremental_change(GROUP, "g", ("nosuch", SET, "1")),
    incremental_change(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1")),
    incremental_change(METRICS, "m", ("interval.ms", SET, "99")),
    incremental_change(METRICS, "m", ("interval.ms", SET, "3600001")),
    incremental_change(METRICS, "m", ("match", SET, "nosuch=.*")),
    incremental_change(METRICS, "m", ("match", SET, "client_id")),
    incremental_change(METRICS, "m", ("match", SET, "client_id=[")),
    incremental_change(METRICS, "m", ("match", SET, "client_id=a,client_id=b")),
    incremental_change(METRICS, "m", ("metrics", APPEND, "org.other."), only_check=True),
    incremental_change(METRICS, "m", ("interval.ms", APPEND, "5")),
    replace(METRICS, "m", ("interval.ms", "5")),
]


@pytest.mark.parametrize("request_", CHANGES, ids=lambda one: repr(one.resources[0])[:120])
def test_refused_and_checked_changes(pair: Pair, request_: Request) -> None:
    """Changes that are refused, or only checked: nothing is different afterwards."""
    pair.compare(request_)


def test_several_resources_in_one_request(pair: Pair) -> None:
    """One resource named twice spoils itself, not the others; kinds may be mixed."""
    first = incremental_change(TOPIC, "set", ("nosuch", SET, "1"))
    first.resources += incremental_change(LOGGER, "7", ("root", SET, "INFO")).resources
    first.resources += incremental_change(GROUP, "g", ("nosuch", SET, "1")).resources
    twice = incremental_change(TOPIC, "set", ("nosuch", SET, "1"))
    twice.resources *= 2
    twice.resources += incremental_change(BROKER, "1", ("log.dirs", SET, "1")).resources
    loggers = incremental_change(LOGGER, "1", ("root", SET, "LOUD"))
    loggers.resources *= 2
    for request in (first, twice, loggers):
        theirs, ours = pair.ask(request)
        assert _outcomes(ours) == _outcomes(theirs)


def _outcomes(answer: Any) -> Any:
    return sorted(
        (one.resource_type, one.resource_name, one.error_code, one.error_message or "")
        for one in answer.responses
    )
