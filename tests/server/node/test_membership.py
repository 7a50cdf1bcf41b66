"""Voters, brokers and credentials, asked of a running node by the admin client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ottla import Admin
from ottla.clients.admin.quorum import VoterEndpoint
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.protocol.apis.broker_registration import BrokerRegistrationRequest
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from ottla.protocol.apis.list_config_resources import ListConfigResourcesRequest
from ottla.testing.cluster import Cluster
from ottla.types import Uuid
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKER, BROKER_LOGGER = 4, 8
OTHER_DIRECTORY = Uuid(bytes(15) + b"\x09")


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    """Ask a node of its own."""
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as asking:
        yield asking


def test_voters_listen_where_the_quorum_says(admin: Admin) -> None:
    """A node that was given port 0 tells the port that it got, and answers there."""
    quorum = admin.describe_metadata_quorum()
    endpoint = quorum.endpoints[quorum.leader_id][0]
    assert endpoint.port > 0
    socket.create_connection(("127.0.0.1", endpoint.port), timeout=WAIT_S).close()
    with Admin(bootstrap_controllers=f"127.0.0.1:{endpoint.port}") as controllers:
        assert controllers.describe_metadata_quorum().leader_id == quorum.leader_id
        found = controllers.describe_cluster()
        assert [node.port for node in found.brokers] == [endpoint.port]
        with pytest.raises(KafkaError, match="not yet supported when communicating directly"):
            controllers.list_topics()


def test_voters_stay_as_they_are(admin: Admin) -> None:
    """The one voter is neither added again nor removed, and one that is not there is not added.

    A broker sends the change on to the controller; a controller answers itself.
    """
    (voter,) = admin.describe_metadata_quorum().voters
    endpoints = [VoterEndpoint("CONTROLLER", "127.0.0.1", 9)]
    quorum = admin.describe_metadata_quorum()
    port = quorum.endpoints[quorum.leader_id][0].port
    with Admin(bootstrap_controllers=f"127.0.0.1:{port}") as controllers:
        for asking in (admin, controllers):
            with pytest.raises(KafkaError) as caught:
                asking.add_raft_voter(voter.replica_id, voter.directory_id, endpoints)
            assert caught.value.code is ErrorCode.DUPLICATE_VOTER
            with pytest.raises(KafkaError) as caught:
                asking.add_raft_voter(9, OTHER_DIRECTORY, endpoints)
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(KafkaError) as caught:
                asking.remove_raft_voter(voter.replica_id, voter.directory_id)
            assert caught.value.code is ErrorCode.VOTER_NOT_FOUND
            with pytest.raises(KafkaError, match="doesn't match the cluster id") as caught:
                asking.remove_raft_voter(1, voter.directory_id, cluster_id="x")
            assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_an_untrusted_client_cannot_be_unregistered(admin: Admin) -> None:
    """Only what is registered can be forgotten."""
    with pytest.raises(KafkaError, match="Broker ID 7 is not currently registered") as caught:
        admin.unregister_broker(7)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_no_one_has_credentials(admin: Admin) -> None:
    """All users are none; one that is asked for is missed, and asked for twice refused."""
    request = DescribeUserScramCredentialsRequest
    assert admin.request(request(users=None)).results == []
    assert admin.describe_user_scram_credentials() == {}
    missed = admin.describe_user_scram_credentials(["bob"])["bob"]
    assert isinstance(missed, KafkaError)
    assert missed.code is ErrorCode.RESOURCE_NOT_FOUND
    users = [request.UserName(name=name) for name in ("bob", "eve", "eve")]
    bob, eve = admin.request(request(users=users)).results
    assert (bob.error_code, eve.error_code) == (
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.DUPLICATE_RESOURCE,
    )


def test_fenced_brokers_are_told_on_demand() -> None:
    """One that has registered and never came up is listed only for those who ask for such."""
    registration = BrokerRegistrationRequest
    with Cluster() as cluster:
        request = registration(
            broker_id=2,
            cluster_id=cluster.run(lambda node: node.cluster_id),
            incarnation_id=OTHER_DIRECTORY,
            listeners=[
                registration.Listener(
                    name="PLAINTEXT", host="elsewhere", port=9, security_protocol=0
                )
            ],
            features=[
                registration.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[Uuid(b"d" * 16)],
        )
        answer = cluster.run(lambda node: node.controller.apis.send(request))
        with Admin(bootstrap_servers=cluster.bootstrap) as asking:
            asking.create_topics(["t"])  # committed behind it
            assert answer.value.error_code == 0
            assert [node.node_id for node in asking.describe_cluster().brokers] == [1]
            found = asking.describe_cluster(include_fenced_brokers=True)
            assert [(node.node_id, node.host) for node in found.brokers][1:] == [(2, "elsewhere")]
            assert found.fenced == {2}
            kinds = ListConfigResourcesRequest(resource_types=[BROKER, BROKER_LOGGER])
            listed = asking.request(kinds).config_resources
            assert sorted((one.resource_type, one.resource_name) for one in listed) == [
                (kind, name) for kind in (BROKER, BROKER_LOGGER) for name in ("1", "2")
            ]
