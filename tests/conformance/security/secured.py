"""Real Kafka and Ottla with logins, an authorizer and delegation tokens, asked as named users.

Kafka: none.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.testing.cluster import Cluster
from tests.conformance.applied import wait_until_applied
from tests.conformance.kafka import RealKafka
from tests.conformance.pair import SHARED, Conversation
from tests.conformance.security.cells import cells
from tests.ports import free_ports
from tests.server.security.certificates import Authority
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from ottla.protocol.schema import Request
    from ottla.security.acl import Acl
    from tests.conformance.kafka import Kafka

CELLS = tuple(cells())
SUPER_USERS = ("root", *(one.user for one in CELLS if one.kind == "super"))
USERS = ("root", "alice", "bob", "carol", *(one.user for one in CELLS))
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{user}="{user}"' for user in USERS
)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SECURITY = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL"
    ),
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (JAAS + ' username="root" password="root";'),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": JAAS + ";",
    "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(f"User:{one}" for one in (*SUPER_USERS, "ANONYMOUS")),
    "delegation.token.secret.key": "secret of all nodes",
}
_TIMEOUT_S = 60
_ACLS_PER_REQUEST = 200


class LoginFailed(Exception):
    """The node refuses a login."""


class SecuredSide:
    """One of the two nodes; a connection for each user is kept until the node closes it."""

    def __init__(
        self,
        login: tuple[str, int],
        plain: tuple[str, int],
        controller: tuple[str, int],
        tls: tuple[str, int],
    ) -> None:
        self.login = login
        self.tls = tls
        self.plain = plain
        self._addresses = {"broker": login, "controller": controller}
        self._connections: dict[tuple[str, str], tuple[socket.socket, Conversation]] = {}

    @property
    def bootstrap(self) -> str:
        """The address of the listener that asks for a login."""
        return f"{self.login[0]}:{self.login[1]}"

    def ask(
        self,
        user: str,
        request: Request,
        version: int | None = None,
        listener: str = "broker",
        *,
        silence_s: float = _TIMEOUT_S,
    ) -> Any:
        """Return the answer to a user; None when the node hangs up, "silent" when it waits."""
        key = user, listener
        if key not in self._connections:
            self._connections[key] = self._connect(user, listener)
        connection, conversation = self._connections[key]
        connection.settimeout(silence_s)
        try:
            answer = conversation.ask(request, version)
        except TimeoutError:
            self._forget(key)
            return "silent"
        except ConnectionResetError:
            answer = None
        if answer is None:
            self._forget(key)
        return answer

    def _connect(self, user: str, listener: str) -> tuple[socket.socket, Conversation]:
        address = self.plain if user == "ANONYMOUS" else self._addresses[listener]
        connection = socket.create_connection(address, timeout=_TIMEOUT_S)
        conversation = Conversation(connection)
        if user != "ANONYMOUS":
            conversation.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0{user}\0{user}".encode()
            answer: Any = conversation.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            if answer is None or answer.error_code:
                raise LoginFailed(user)
        return connection, conversation

    def _forget(self, key: tuple[str, str]) -> None:
        self._connections.pop(key)[0].close()

    def settle(self) -> None:
        """Wait until all changes so far count."""
        wait_until_applied(lambda request, version: self.ask("ANONYMOUS", request, version))

    def set_acls(self, acls: Iterable[Acl]) -> None:
        """Replace all entries."""
        everything = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        self.ask("ANONYMOUS", DeleteAclsRequest(filters=[everything]))
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in acls
        ]
        for begin in range(0, len(creations), _ACLS_PER_REQUEST):
            some = creations[begin : begin + _ACLS_PER_REQUEST]
            answer = self.ask("ANONYMOUS", CreateAclsRequest(creations=some))
            assert all(one.error_code == 0 for one in answer.results), answer
        self.settle()

    def close(self) -> None:
        """Close all connections."""
        for key in list(self._connections):
            self._forget(key)


def _certificate(path: Path) -> dict[str, str]:
    """Write a key and its certificate; return the settings of the listener that has them."""
    location = Authority().issue("node").write_pem(path)
    prefix = "listener.name.tls.ssl.keystore"
    return {f"{prefix}.type": "PEM", f"{prefix}.location": location}


def _side(addresses: Mapping[str, tuple[str, int]]) -> SecuredSide:
    return SecuredSide(*(addresses[one] for one in ("LOGIN", "PLAINTEXT", "CONTROLLER", "TLS")))


@contextmanager
def secured_sides(kafka: Kafka, directory: Path) -> Iterator[tuple[SecuredSide, SecuredSide]]:
    """Run both nodes: Kafka's side, ours."""
    port, tls_port = free_ports(2)
    settings = {**SHARED, **SECURITY, **_certificate(directory / "node.pem")}
    real = RealKafka(kafka, directory, dict(settings))
    real.properties["listeners"] += f",LOGIN://127.0.0.1:{port},TLS://127.0.0.1:{tls_port}"
    listeners = ",".join(
        f"{name}://127.0.0.1:0" for name in ("LOGIN", "PLAINTEXT", "CONTROLLER", "TLS")
    )
    with ExitStack() as stack:
        stack.callback(real.kill)
        real.format()
        real.start()
        cluster = stack.enter_context(Cluster(config={**settings, "listeners": listeners}))
        addresses = cluster.run(lambda node: dict(node.addresses))
        theirs = SecuredSide(
            *(("127.0.0.1", one) for one in (port, real.port, real.controller_port, tls_port))
        )
        ours = _side(addresses)
        stack.callback(theirs.close)
        stack.callback(ours.close)
        yield theirs, ours


@contextmanager
def forwarding_side() -> Iterator[SecuredSide]:
    """Run three Ottla nodes; ask node 1, whose controller is not active, so that it forwards."""
    names = ("LOGIN", "PLAINTEXT", "CONTROLLER")
    config = {**SHARED, **SECURITY, "listeners": ",".join(f"{one}://127.0.0.1:0" for one in names)}
    with Cluster(nodes=3, config=config) as cluster:
        wait_for(lambda: cluster.controller_id is not None)
        if cluster.controller_id == 1:
            cluster.restart(1)
        wait_for(lambda: cluster.controller_id in {2, 3})
        addresses = cluster.run(lambda node: dict(node.addresses), 1)
        side = _side({"TLS": addresses["LOGIN"], **addresses})
        yield side
        side.close()
