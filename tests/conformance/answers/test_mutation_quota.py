"""Partitions made and removed beyond a quota, on real Kafka 4.3.0 and on a node."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID
from tests.conformance.answers.test_quota_answers import ask, one_quota
from tests.conformance.applied import wait_until_applied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance
LIMIT = 0.01
CREATE, DELETE, GROW = 7, 6, 3
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node of ours."""
    with Cluster() as running:
        yield running


def _create(*names: str, count: int = 3, validate_only: bool = False) -> Request:
    struct = CreateTopicsRequest.CreatableTopic
    topics = [
        struct(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


def _delete(*names: str) -> Request:
    struct = DeleteTopicsRequest.DeleteTopicState
    topics = [struct(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=5000)


def _delete_old(*names: str) -> Request:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)


def _grow(name: str, count: int) -> Request:
    struct = CreatePartitionsRequest.CreatePartitionsTopic
    requested = struct(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[requested], timeout_ms=5000, validate_only=False)


STORIES: dict[str, list[tuple[Request, int]]] = {
    "create": [(_create("m1", "m2"), CREATE), (_create("m3"), 6), (_create("m4"), 5)],
    "trial": [(_create("m1", validate_only=True), CREATE), (_create("m2"), CREATE)],
    "refused": [(_create("m*"), CREATE), (_create("m5", "m6"), CREATE)],
    "delete": [(_delete("old1"), DELETE), (_delete("old2"), DELETE), (_delete_old("old2"), 5)],
    "delete old": [(_delete_old("old3"), 4), (_delete_old("old4"), 4)],
    "grow": [(_grow("old6", 4), GROW), (_grow("old6", 5), GROW), (_grow("old6", 6), 2)],
}


def test_the_same_changes_are_refused(real_kafka: RealKafka, cluster: Cluster) -> None:
    """Story by story, each with a full bucket: codes, texts and the length of the pause."""
    ours = int(cluster.bootstrap.rpartition(":")[2])
    different = []
    for port in (real_kafka.port, ours):
        assert not ask(port, _create(*(f"old{n}" for n in range(1, 7))), CREATE).throttle_time_ms
    for name, story in STORIES.items():
        answers = [_report(port, story) for port in (real_kafka.port, ours)]
        if answers[0] != answers[1]:
            different.append(f"{name}\n  Kafka {answers[0]}\n  Ottla {answers[1]}")
    assert not different, "\n".join(different)


def _report(port: int, story: list[tuple[Request, int]]) -> list[Any]:
    """Ask one question after the other as a client that has a quota of its own."""
    client_id = f"mutator-{next(NUMBERS)}"
    ask(port, one_quota("controller_mutation_rate", LIMIT, client_id=client_id), 1)
    wait_until_applied(partial(ask, port))
    answered = [_shown(ask(port, request, version, client_id)) for request, version in story]
    ask(port, one_quota("controller_mutation_rate", None, client_id=client_id), 1)
    return answered


def _shown(answer: Any) -> Any:
    results = next(
        getattr(answer, name)
        for name in ("topics", "responses", "results")
        if hasattr(answer, name)
    )
    outcome = [(one.name, one.error_code, getattr(one, "error_message", None)) for one in results]
    return round(answer.throttle_time_ms / 5000), outcome
