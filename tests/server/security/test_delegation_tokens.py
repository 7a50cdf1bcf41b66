"""Delegation tokens on a running node: made, used as logins, renewed, expired, and refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.testing.cluster import Cluster
from tests.waits import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.admin.security import DelegationToken

USERS = "root alice bob carol"
JAAS = "a.Plain required " + " ".join(f'user_{user}="{user}"' for user in USERS.split()) + ";"
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": (
        "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:ANONYMOUS",
    "delegation.token.secret.key": "secret of all nodes",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a node that makes tokens; only root may do everything."""
    with Cluster(config=SETTINGS) as running:
        yield running


def as_user(cluster: Cluster, user: str) -> Admin:
    """Return an admin client with a password."""
    return Admin(
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=user,
        sasl_password=user,
    )


def by_token(cluster: Cluster, name: str, password: str, mechanism: str) -> dict[str, Any]:
    """Return the settings of a client with a token."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": (
            f'{module} required username="{name}" password="{password}" tokenauth="true";'
        ),
    }


def refused(cluster: Cluster, token: DelegationToken) -> bool:
    """Whether a token does not let its client in."""
    settings = by_token(cluster, token.token_id, token.password, "SCRAM-SHA-256")
    try:
        with Admin(**settings) as admin:
            admin.list_topics(timeout=WAIT_S)
    except KafkaError as error:
        return error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner(cluster: Cluster, mechanism: str) -> None:
    """It is alice who writes; a client with a token gets no other one."""
    allowed = Acl(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:alice",
        "*",
        Operation.ALL,
        Permission.ALLOW,
    )
    with as_user(cluster, "root") as root:
        root.create_acls([allowed])
    with as_user(cluster, "alice") as alice:
        token = alice.create_delegation_token(renewers=["User:bob"])
    assert (token.owner, token.requester) == ("User:alice", "User:alice")
    assert token.expires_ms - token.issued_ms == 86_400_000
    assert token.max_ms - token.issued_ms == 604_800_000
    settings = by_token(cluster, token.token_id, token.password, mechanism)
    with Producer(**settings) as producer:
        sent = producer.send("t", b"value")
        producer.flush()
        assert sent.result(WAIT_S).topic == "t"
    with Admin(**settings) as admin:
        for call in (admin.create_delegation_token, admin.describe_delegation_tokens):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_ends(cluster: Cluster) -> None:
    """A removed token and an expired one are refused; a wrong HMAC is always."""
    with as_user(cluster, "alice") as alice:
        token = alice.create_delegation_token()
        assert not refused(cluster, token)
        assert refused(cluster, token._replace(hmac=b"x" * 64))
        assert refused(cluster, token._replace(token_id="unknown"))
        expires_ms = alice.expire_delegation_token(token.hmac, expiry_period_ms=0)
        while time.time() * 1000 <= expires_ms:
            pass
        assert refused(cluster, token)
        with pytest.raises(KafkaError) as caught:
            alice.renew_delegation_token(token.hmac)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
        alice.expire_delegation_token(token.hmac)
        assert refused(cluster, token)
        with pytest.raises(KafkaError) as caught:
            alice.expire_delegation_token(token.hmac)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_only_owners_and_renewers_renew(cluster: Cluster) -> None:
    """Bob may, carol may not; the maximum cannot be passed."""
    with (
        as_user(cluster, "alice") as alice,
        as_user(cluster, "bob") as bob,
        as_user(cluster, "carol") as carol,
    ):
        token = alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=60_000)
        assert token.expires_ms == token.max_ms == token.issued_ms + 60_000
        assert bob.renew_delegation_token(token.hmac, renew_period_ms=10_000) < token.max_ms
        assert bob.renew_delegation_token(token.hmac) == token.max_ms
        for call in (carol.renew_delegation_token, carol.expire_delegation_token):
            with pytest.raises(KafkaError) as caught:
                call(token.hmac)
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with pytest.raises(KafkaError) as caught:
            alice.create_delegation_token(renewers=["Group:bob"])
        assert caught.value.code is ErrorCode.INVALID_PRINCIPAL_TYPE


def test_rights_on_the_tokens_of_others(cluster: Cluster) -> None:
    """CREATE_TOKENS makes one for another user, DESCRIBE_TOKENS shows another's."""
    with as_user(cluster, "carol") as carol, as_user(cluster, "root") as root:
        with pytest.raises(KafkaError) as caught:
            carol.create_delegation_token(owner="User:alice")
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert carol.describe_delegation_tokens() == []
        operations = (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)
        root.create_acls(
            Acl(
                ResourceType.USER,
                PatternType.LITERAL,
                "User:alice",
                "User:carol",
                "*",
                operation,
                Permission.ALLOW,
            )
            for operation in operations
        )
        made = carol.create_delegation_token(owner="User:alice")
        assert (made.owner, made.requester) == ("User:alice", "User:carol")
        assert made in carol.describe_delegation_tokens()
        assert made in carol.describe_delegation_tokens(["User:alice"])
        assert carol.describe_delegation_tokens(["User:unknown"]) == []
        assert carol.describe_delegation_tokens([]) == []
        assert repr(made.hmac) not in repr(made)


def test_no_token_over_an_open_connection(cluster: Cluster) -> None:
    """A listener without TLS and login refuses all four requests."""
    host, port = cluster.run(lambda node: node.addresses["INSIDE"])
    with Admin(bootstrap_servers=f"{host}:{port}") as admin:
        answer = admin.request(DescribeDelegationTokenRequest(owners=None))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for call in (
            admin.create_delegation_token,
            lambda: admin.renew_delegation_token(b"x"),
            lambda: admin.expire_delegation_token(b"x"),
        ):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
