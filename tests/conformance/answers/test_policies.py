"""The same policy in Java on real Kafka 4.3.0 and in Python on Ottla: called and applied alike.

Kafka: org.apache.kafka.server.policy, ReplicationControlManager, ConfigurationControlManager.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.protocol.apis.create_topics import CreateTopicsRequest
from tests.conformance.answers.test_configs import (
    DELETE,
    GROUP,
    METRICS,
    SET,
    TOPIC,
    replace,
)
from tests.conformance.pair import Pair, running_pair
from tests.controller.harness import assigned_topic, incremental_change, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
JAVA = Path(__file__).parents[1] / "java" / "NoForbidden.java"
SETTINGS = ("create.topic.policy.class.name", "alter.config.policy.class.name")


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both with the same two policies, each in its language."""
    python = (
        "tests.server.node.policies.NoForbiddenTopics",
        "tests.server.node.policies.NoGuardedChanges",
    )
    with running_pair(
        kafka,
        tmp_path_factory.mktemp("policies"),
        theirs=dict(zip(SETTINGS, ("NoForbidden$Topics", "NoForbidden$Configs"), strict=True)),
        ours=dict(zip(SETTINGS, python, strict=True)),
        classes=kafka.compile(JAVA),
    ) as pair:
        yield pair


def _create(*topics: CreateTopicsRequest.CreatableTopic) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics))


def test_topics_are_refused_by_policy(pair: Pair) -> None:
    """The policy is called with the defaults filled in, with assignments, with settings."""
    pair.compare(
        _create(topic("forbidden")),
        _create(topic("forbidden-default", -1, -1)),
        _create(topic("forbidden-set", 2, 1, retention_ms="5", cleanup_policy="compact")),
        _create(assigned_topic("forbidden-by-hand", [1], [1])),
        _create(topic("allowed"), topic("forbidden-too")),
        _create(topic("forbidden", 1, 3)),
        _create(topic("forbidden*")),
        _create(topic("forbidden", retention_ms="z")),
        _create(topic("guarded")),
        _create(topic("guarded-set", retention_ms="5")),
    )


def test_changes_are_refused_by_policy(pair: Pair) -> None:
    """The policy sees what was named and would be different, nulls for what is taken back."""
    pair.ask(_create(topic("guarded.topic"), topic("free")))
    pair.compare(
        incremental_change(TOPIC, "guarded.topic", ("retention.ms", SET, "5")),
        incremental_change(TOPIC, "guarded.topic", ("retention.ms", DELETE, None)),
        incremental_change(
            TOPIC, "guarded.topic", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None)
        ),
        incremental_change(TOPIC, "guarded.topic"),
        incremental_change(TOPIC, "guarded.absent", ("retention.ms", SET, "5")),
        incremental_change(TOPIC, "guarded.topic", ("retention.ms", SET, "z")),
        incremental_change(TOPIC, "guarded.topic", ("retention.ms", SET, "5"), only_check=True),
        incremental_change(GROUP, "guarded", ("consumer.session.timeout.ms", SET, "46000")),
        incremental_change(METRICS, "guarded", ("interval.ms", SET, "1000")),
        replace(TOPIC, "guarded.topic", ("retention.ms", "5")),
        replace(TOPIC, "guarded.topic"),
        incremental_change(TOPIC, "free", ("retention.ms", SET, "5")),
        incremental_change(TOPIC, "free", ("retention.ms", SET, "666")),
    )


def test_a_policy_that_breaks_refuses(pair: Pair) -> None:
    """Nothing is created by a policy that cannot decide."""
    pair.compare(_create(topic("broken")))
