"""Rights on a running node: each kind of request with and without them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, Producer
from ottla.clients.admin.security import ANY_ACL
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_cluster import DescribeClusterRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.server.requests.api import handles, served_apis
from ottla.server.requests.rights import text_of
from ottla.testing.cluster import Cluster
from tests.server.requests.untrusted_clients import Peer
from tests.waits import WAIT_S, read_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = "root alice bob"
JAAS = "a.Plain required " + " ".join(f'user_{user}="{user}"' for user in USERS.split()) + ";"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
}
GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node where root may do everything, and others what entries allow."""
    with Cluster(config=SETTINGS) as running:
        yield running


def settings(cluster: Cluster, user: str) -> dict[str, Any]:
    """Return a user's client settings."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": user,
    }


@pytest.fixture
def admins(cluster: Cluster) -> Iterator[dict[str, Admin]]:
    """Return an admin client for each user; the entries of the last test are gone."""
    with ExitStack() as opened:
        found = {
            user: opened.enter_context(Admin(**settings(cluster, user))) for user in USERS.split()
        }
        found["root"].delete_acls([ANY_ACL])
        yield found


def allow(admin: Admin, *rights: tuple[ResourceType, str, Operation], user: str = "alice") -> None:
    """Store entries for a user."""
    done = admin.create_acls(
        Acl(kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, Permission.ALLOW)
        for kind, name, operation in rights
    )
    assert not any(done.values())


def logged_in(cluster: Cluster, user: str) -> Peer:
    """Return a connection on which a user has logged in."""
    peer = Peer(cluster.bootstrap)
    peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = f"\0{user}\0{user}".encode()
    assert not peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
    return peer


def listed(outcome: list[Acl] | KafkaError) -> list[Acl]:
    """Return the entries of an outcome that is no error."""
    assert not isinstance(outcome, KafkaError)
    return outcome


def code_of(outcome: Any) -> ErrorCode | None:
    """Return the error of an outcome."""
    return outcome.code if isinstance(outcome, KafkaError) else None


def test_entries_are_described_and_deleted(admins: dict[str, Admin]) -> None:
    """Who may describe the cluster sees them; only who may alter it changes them."""
    root, alice = admins["root"], admins["alice"]
    one = Acl(TOPIC, PatternType.PREFIXED, "t", "User:bob", "*", Operation.READ, Permission.DENY)
    assert root.create_acls([one, one]) == {one: None}
    assert root.create_acls([one]) == {one: None}
    assert root.describe_acls() == [one]
    with pytest.raises(KafkaError) as refused:
        alice.describe_acls()
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [code_of(error) for error in alice.create_acls([one]).values()] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ]
    denied = alice.delete_acls([ANY_ACL])[ANY_ACL]
    assert code_of(denied) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow(root, (CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
    assert one in alice.describe_acls()
    assert one in listed(root.delete_acls([ANY_ACL])[ANY_ACL])
    assert root.describe_acls() == []


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": CLUSTER},
        {"resource_name": ""},
        {"principal": "alice"},
        {"operation": Operation.ANY},
        {"permission": Permission.ANY},
        {"pattern_type": PatternType.MATCH},
    ],
)
def test_entries_without_meaning_are_refused(
    admins: dict[str, Admin], change: dict[str, Any]
) -> None:
    """A cluster of another name, an empty name, a principal without a type, ANY."""
    one = Acl(TOPIC, PatternType.LITERAL, "t", "User:bob", "*", Operation.READ, Permission.ALLOW)
    (error,) = admins["root"].create_acls([one._replace(**change)]).values()
    assert code_of(error) is ErrorCode.INVALID_REQUEST


def test_topics_are_made_and_hidden(admins: dict[str, Admin]) -> None:
    """CREATE on the name is enough; without DESCRIBE a topic is neither listed nor described."""
    root, alice, bob = (admins[user] for user in USERS.split())
    refused = alice.create_topics(["made"], timeout=WAIT_S)["made"]
    assert code_of(refused) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow(root, (TOPIC, "made", Operation.CREATE))
    assert not isinstance(alice.create_topics(["made"], timeout=WAIT_S)["made"], KafkaError)
    assert "made" not in {str(one) for one in bob.list_topics()}
    assert "made" in str(root.list_topics())
    denied = bob.describe_topics(["made", "no-such-topic"])
    assert {code_of(one) for one in denied.values()} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    gone = bob.delete_topics(["made"])["made"]
    assert code_of(gone) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow(root, (TOPIC, "made", Operation.DELETE), user="bob")
    assert bob.delete_topics(["made"])["made"] is None


def test_records_need_a_right(cluster: Cluster, admins: dict[str, Admin]) -> None:
    """WRITE to produce; READ on topic and group to consume; what is revoked ends at once."""
    root = admins["root"]
    root.create_topics(["records"])
    allow(root, (TOPIC, "records", Operation.WRITE))
    alice, bob = settings(cluster, "alice"), settings(cluster, "bob")
    with Producer(**bob, enable_idempotence=False) as producer:
        with pytest.raises(KafkaError) as caught:
            producer.send("records", b"b").result(WAIT_S)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with Producer(**alice) as producer:
        producer.send("records", b"a").result(WAIT_S)
    allow(root, (TOPIC, "records", Operation.READ), user="bob")
    with (
        Consumer("records", group_id="g", **bob) as consumer,
        pytest.raises(KafkaError) as caught,
    ):
        consumer.poll(timeout=WAIT_S)
    assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    allow(root, (GROUP, "g", Operation.READ), user="bob")
    with Consumer("records", group_id="g", auto_offset_reset="earliest", **bob) as consumer:
        assert [record.value for record in read_records(consumer)] == [b"a"]
        root.delete_acls([ANY_ACL._replace(principal="User:bob", resource_type=TOPIC)])
        with pytest.raises(KafkaError) as caught:  # noqa: PT012 - one of several polls
            for _ in range(100):
                consumer.poll(timeout=0.2)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_follower_is_known_by_its_rights(cluster: Cluster, admins: dict[str, Admin]) -> None:
    """A replica id in a Fetch proves nothing (CVE-2018-1288), as the client id of an admin."""
    topic = FetchRequest.FetchTopic
    admins["root"].create_topics(["followed"])
    request = FetchRequest(
        replica_id=1,
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            topic(
                topic="followed",
                partitions=[
                    topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = logged_in(cluster, "alice").ask(request, 12)
    assert [part.error_code for one in answer.responses for part in one.partitions] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ]


def test_groups_are_shown_to_who_may_describe_them(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    """Others get GROUP_AUTHORIZATION_FAILED, and lists without them."""
    root, alice = admins["root"], admins["alice"]
    root.create_topics(["grouped"])
    with Consumer("grouped", group_id="shown", **settings(cluster, "root")) as consumer:
        consumer.poll(timeout=0.5)
        assert "shown" in str(root.list_groups())
        assert "shown" not in str(alice.list_groups())
        described = alice.describe_groups(["shown"])["shown"]
        assert code_of(described) is ErrorCode.GROUP_AUTHORIZATION_FAILED
        allow(root, (GROUP, "shown", Operation.DESCRIBE))
        assert "shown" in str(alice.list_groups())
        assert not isinstance(alice.describe_groups(["shown"])["shown"], KafkaError)


def test_transactions_are_listed_to_who_may_describe_them(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    """Others get lists without them."""
    root, alice = admins["root"], admins["alice"]
    with Producer(transactional_id="listed", **settings(cluster, "root")) as producer:
        producer.init_transactions()
        assert "listed" in str(root.list_transactions())
        assert "listed" not in str(alice.list_transactions())
        allow(root, (ResourceType.TRANSACTIONAL_ID, "listed", Operation.DESCRIBE))
        assert "listed" in str(alice.list_transactions())


def test_the_cluster_is_altered_by_who_may(admins: dict[str, Admin]) -> None:
    """Settings, quotas, credentials, features, quorum."""
    alice = admins["alice"]
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert code_of(alice.alter_user_scram_credentials({"x": "y"})["x"]) is denied
    for call in (alice.describe_metadata_quorum, alice.describe_user_scram_credentials):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is denied
    allow(admins["root"], (CLUSTER, CLUSTER_NAME, Operation.ALTER))
    assert alice.describe_metadata_quorum().leader_id == 1
    assert alice.alter_user_scram_credentials({"x": "y"}) == {"x": None}


def test_operations_are_those_that_are_allowed(cluster: Cluster, admins: dict[str, Admin]) -> None:
    """KIP-430: implied ones included; the cluster's are hidden without DESCRIBE."""
    root = admins["root"]
    root.create_topics(["bits"])
    allow(root, (TOPIC, "bits", Operation.READ))
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="bits")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    found = logged_in(cluster, "alice").ask(request, 8)
    expected = (1 << Operation.READ) | (1 << Operation.DESCRIBE)
    assert [one.topic_authorized_operations for one in found.topics] == [expected]
    assert found.cluster_authorized_operations == 0
    assert logged_in(cluster, "root").ask(request, 8).cluster_authorized_operations == sum(
        1 << operation for operation in OPERATIONS[CLUSTER]
    )


def test_no_api_is_registered_without_a_right() -> None:
    """Each declares one, and the documents can name it."""
    undeclared: Any = handles
    with pytest.raises(TypeError, match="right"):
        undeclared(MetadataRequest)
    served = [*served_apis("broker").values(), *served_apis("controller").values()]
    assert not [api.key.name for api in served if not text_of(api.right)]


def test_without_an_authorizer_there_are_no_entries() -> None:
    """SECURITY_DISABLED, as in Kafka."""
    with Cluster() as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with pytest.raises(KafkaError, match="No Authorizer is configured"):
            admin.describe_acls()
        deleted = admin.delete_acls([ANY_ACL])[ANY_ACL]
        assert code_of(deleted) is ErrorCode.SECURITY_DISABLED


def test_operations_of_the_cluster_need_the_right_to_describe_it(
    cluster: Cluster, admins: dict[str, Admin]
) -> None:
    """Another right on the cluster does not tell them, as a description or with metadata."""
    metadata_request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    described = DescribeClusterRequest(include_cluster_authorized_operations=True)
    peer = logged_in(cluster, "alice")
    for operation, visible in ((Operation.CREATE, 0), (Operation.DESCRIBE, 1)):
        allow(admins["root"], (CLUSTER, CLUSTER_NAME, operation))
        bits = visible and 1 << Operation.CREATE | 1 << Operation.DESCRIBE
        for request, version in ((described, 0), (metadata_request, 8)):
            wait_for(
                lambda request=request, version=version, bits=bits: (  # type: ignore[misc]
                    peer.ask(request, version).cluster_authorized_operations == bits
                )
            )
