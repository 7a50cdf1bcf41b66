"""Settings of tiered topics and brokers: real Kafka and our controller answer the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from ottla.config.reconfiguration import refusal
from ottla.controller.config_operations import ConfigOperation
from ottla.errors import ErrorCode
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from tests.conformance.kafka import running_kafka
from tests.conformance.pair import Speaker
from tests.conformance.tiers.tiered_kafka import tier_properties
from tests.controller.harness import Harness, incremental_change, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
TOPIC, BROKER = 2, 4
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
ENABLED = {"remote.storage.enable": "true"}
BOTH = {**ENABLED, "retention.ms": "100000", "retention.bytes": "2000000"}
CREATIONS: tuple[dict[str, str], ...] = (
    ENABLED,
    {**ENABLED, "cleanup.policy": "compact"},
    {**ENABLED, "cleanup.policy": "compact,delete"},
    {**ENABLED, "cleanup.policy": ""},
    {**ENABLED, "local.retention.ms": "100000", "retention.ms": "1000"},
    {**ENABLED, "local.retention.bytes": "100000", "retention.bytes": "1000"},
    {**BOTH, "local.retention.ms": "-1"},
    {**BOTH, "local.retention.bytes": "-1"},
    {**BOTH, "local.retention.ms": "-2", "local.retention.bytes": "-2"},
    {**BOTH, "local.retention.ms": "-3"},
    {**ENABLED, "retention.ms": "-1", "local.retention.ms": "5"},
    {**ENABLED, "remote.log.copy.disable": "true"},
    {**BOTH, "remote.log.copy.disable": "true", "local.retention.bytes": "5"},
    {**BOTH, "remote.log.copy.disable": "true", "local.retention.ms": "5"},
    {**BOTH, "remote.log.copy.disable": "true", "local.retention.ms": "100000"},
    {"remote.log.copy.disable": "true"},
    {"remote.log.delete.on.disable": "true"},
    {"remote.storage.enable": "false", "local.retention.ms": "100000", "retention.ms": "1000"},
    {"remote.storage.enable": "maybe"},
)
ALTERATIONS: tuple[tuple[tuple[str, int, str | None], ...], ...] = (
    (("cleanup.policy", SET, "compact"),),
    (("remote.storage.enable", SET, "false"),),
    (("remote.storage.enable", DELETE, None),),
    (("remote.log.copy.disable", SET, "true"), ("local.retention.bytes", SET, "5")),
    (("remote.log.copy.disable", SET, "true"),),
    (("local.retention.ms", SET, "5"),),
    (("remote.log.copy.disable", SET, "false"), ("local.retention.ms", SET, "5")),
    (("retention.ms", SET, "4"),),
    (("remote.storage.enable", DELETE, None), ("remote.log.delete.on.disable", SET, "true")),
    (("remote.storage.enable", SET, "true"),),
    (("remote.storage.enable", SET, "false"),),
)
BROKERS: tuple[tuple[tuple[str, int, str | None], ...], ...] = (
    (("log.local.retention.ms", SET, "-1"),),
    (("log.local.retention.ms", SET, "99999999999"),),
    (("remote.log.reader.threads", SET, "0"),),
    (("remote.log.manager.task.interval.ms", SET, "5"),),
    (("remote.log.storage.system.enable", SET, "false"),),
    (("remote.log.index.file.cache.total.size.bytes", SET, "0"),),
    (("remote.log.manager.copy.max.bytes.per.second", SET, "5000000"),),
    (("follower.fetch.last.tiered.offset.enable", SET, "true"),),
    (("remote.fetch.max.wait.ms", SET, "0"),),
)


Answers: TypeAlias = list[tuple[int, str | None]]


class Both:
    """Kafka and our controller with tiered storage enabled."""

    def __init__(self, theirs: Speaker, ours: Harness) -> None:
        self.theirs = theirs
        self.ours = ours

    def answers(self, request: Any) -> tuple[Answers, Answers]:
        """Return code and text of each result, Kafka's first."""
        found: list[Answers] = []
        answers: tuple[Any, Any] = self.theirs.ask(request), self.ours.ask(request)
        for answer in answers:
            is_creation = isinstance(request, CreateTopicsRequest)
            results = answer.topics if is_creation else answer.responses
            found.append([(one.error_code, one.error_message) for one in results])
        return found[0], found[1]

    def create(self, name: str, settings: dict[str, str]) -> tuple[Answers, Answers]:
        """Create a topic."""
        described = topic(name)
        described.configs = [
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in settings.items()
        ]
        return self.answers(CreateTopicsRequest(topics=[described]))


@pytest.fixture(scope="module", name="both")
def _both(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    directory = tmp_path_factory.mktemp("settings")
    with running_kafka(kafka, directory, tier_properties(kafka, directory / "tier")) as node:
        ours = Harness(remote_log_storage_system_enable="true").bring_up()
        yield Both(Speaker(node.bootstrap), ours)


@pytest.mark.parametrize("number", range(len(CREATIONS)))
def test_topics_are_created_or_refused_with_the_same_words(both: Both, number: int) -> None:
    """Policies, local retention, copies disabled, ranges."""
    theirs, ours = both.create(f"t{number}", CREATIONS[number])
    assert ours == theirs, CREATIONS[number]


def test_topics_are_altered_or_refused_with_the_same_words(both: Both) -> None:
    """In order: policies, disabling with and without deletion, copies, and back again."""
    both.create("altered", BOTH)
    for changes in ALTERATIONS:
        theirs, ours = both.answers(incremental_change(TOPIC, "altered", *changes))
        assert ours == theirs, changes


def test_brokers_are_altered_or_refused_with_the_same_words(both: Both) -> None:
    """What is dynamic, ranges, and local retention within the whole."""
    config = both.ours.config
    for changes in BROKERS:
        theirs, ours = both.answers(incremental_change(BROKER, "1", *changes))
        # the controller alone has no broker to ask
        reason = refusal(config, config, {name: value or "" for name, _, value in changes})
        if ours == [(0, None)] and reason:
            ours = [(ErrorCode.INVALID_REQUEST, reason)]
        assert ours == theirs, changes
