"""DescribeCluster on a controller's listener (KIP-919)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.broker import ControllerRegistration, ListenerAddress
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.server.handlers.brokers import describe_cluster
from ottla.types import Uuid


def _described(metadata_version: int, *registered: ControllerRegistration) -> Any:
    image = MetadataImage()
    image.features.levels[METADATA_VERSION] = metadata_version
    image.cluster.controllers.update({one.controller_id: one for one in registered})
    quorum = SimpleNamespace(leader_id=2)
    broker = SimpleNamespace(image=image, quorum=quorum, cluster_id="cluster")
    ctx: Any = SimpleNamespace(listener="controller", listener_name="CONTROLLER", broker=broker)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    return describe_cluster(ctx, request)


def _controller(number: int, listener: str) -> ControllerRegistration:
    listeners = {listener: ListenerAddress(f"host{number}", 9093, 0)}
    return ControllerRegistration(
        number, Uuid(bytes(16)), zk_migration_ready=False, listeners=listeners, features={}
    )


def test_the_registered_controllers_with_the_listener_are_listed_by_id() -> None:
    """Whether they vote does not matter."""
    found: DescribeClusterResponse = _described(
        15, _controller(3, "CONTROLLER"), _controller(1, "CONTROLLER"), _controller(2, "OTHER")
    )
    assert [(one.broker_id, one.host, one.port) for one in found.brokers] == [
        (1, "host1", 9093),
        (3, "host3", 9093),
    ]
    assert (found.controller_id, found.endpoint_type, found.cluster_id) == (2, 2, "cluster")


def test_old_metadata_versions_know_no_controllers() -> None:
    """Before 3.7-IV0 they do not register."""
    with pytest.raises(KafkaError, match="Direct-to-controller communication") as caught:
        _described(14, _controller(1, "CONTROLLER"))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
