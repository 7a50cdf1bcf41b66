"""Requests that are refused as a whole: each of their items is told, the connection stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.controller import runtime
from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID
from tests.server.requests.untrusted_clients import Peer, create_topic

if TYPE_CHECKING:
    import pytest

    from ottla.protocol.schema import Request

NAMES = [f"topic-{number}" for number in range(12)]
LONG = [("segment.bytes", "1048576"), ("retention.ms", "5000000")]
Creatable = CreateTopicsRequest.CreatableTopic
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Replaced = AlterConfigsRequest.AlterConfigsResource


def _requests() -> list[tuple[Request, int, str]]:
    """Return requests that need more records than the batch of the test holds."""
    creation = CreateTopicsRequest(
        topics=[
            Creatable(
                name=f"new-{name}",
                num_partitions=3,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name in NAMES
        ],
        timeout_ms=5000,
    )
    growth = CreatePartitionsRequest(
        topics=[
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=9, assignments=None)
            for name in NAMES
        ],
        timeout_ms=5000,
        validate_only=False,
    )
    changes = [
        Changed(
            resource_type=2,
            resource_name=name,
            configs=[
                Changed.AlterableConfig(name=key, config_operation=0, value=value)
                for key, value in LONG
            ],
        )
        for name in NAMES
    ]
    replacements = [
        Replaced(
            resource_type=2,
            resource_name=name,
            configs=[Replaced.AlterableConfig(name=key, value=value) for key, value in LONG],
        )
        for name in NAMES
    ]
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in NAMES]
    return [
        (creation, 7, "topics"),
        (growth, 3, "results"),
        (IncrementalAlterConfigsRequest(resources=changes, validate_only=False), 1, "responses"),
        (AlterConfigsRequest(resources=replacements, validate_only=False), 2, "responses"),
        (DeleteTopicsRequest(topics=states, timeout_ms=5000), 6, "responses"),
        (DeleteTopicsRequest(topic_names=NAMES, timeout_ms=5000), 5, "responses"),
    ]


def test_what_one_batch_cannot_hold_is_refused_item_by_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection was closed, and clients sent the same again until their time was over."""
    with Cluster() as cluster:
        create_topic(cluster, *NAMES)
        monkeypatch.setattr(runtime, "MAX_BATCH_BYTES", 500)
        peer = Peer(cluster.bootstrap)
        for request, version, field in _requests():
            told: list[Any] = getattr(peer.ask(request, version), field)
            assert {one.error_code for one in told} == {int(ErrorCode.POLICY_VIOLATION)}
            assert len(told) == len(NAMES)
        monkeypatch.undo()
        peer.close()
