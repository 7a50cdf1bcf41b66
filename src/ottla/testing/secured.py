"""A node with users and ACLs, for tests of authorization.

Kafka: none.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from ottla.clients.blocking import Admin
from ottla.config.broker.unsupported import STANDARD_AUTHORIZER
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.testing.cluster import Cluster
from ottla.testing.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

_ADMIN = "admin"


class SecuredCluster(Cluster):
    """One node whose users log in by SCRAM-SHA-256, and an authorizer that allows what is granted.

    `with SecuredCluster("alice", "bob") as cluster:` creates the users, `grant` adds ACLs,
    and `login("alice")` returns the settings of her clients. `login("admin")` may do everything.
    """

    def __init__(self, *users: str, config: Mapping[str, object] | None = None) -> None:
        """Take the names of users; their passwords are random."""
        self._passwords = {user: secrets.token_urlsafe(9) for user in (_ADMIN, *users)}
        super().__init__(config={**_settings(self._passwords[_ADMIN]), **(config or {})})

    def start(self, node_id: int | None = None) -> Self:
        """Start the node and create the users."""
        super().start(node_id)
        plain = {**self.login(_ADMIN), "sasl_mechanism": "PLAIN"}
        with Admin(**plain) as admin:
            failed = admin.alter_user_scram_credentials(self._passwords)
        refused = {user: error for user, error in failed.items() if error is not None}
        if refused:
            raise ClusterError(f"users could not be created: {refused}")
        return self

    def login(self, user: str) -> dict[str, Any]:
        """Return the settings of a user's clients, as keywords."""
        if user not in self._passwords:
            raise ClusterError(f"there is no user {user}, but {', '.join(self._passwords)}")
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": user,
            "sasl_password": self._passwords[user],
        }

    def grant(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Allow operations, by Kafka's names as "read"; a name that ends with * is a prefix."""
        named = {
            ResourceType.TOPIC: topic,
            ResourceType.GROUP: group,
            ResourceType.TRANSACTIONAL_ID: transactional_id,
        }
        entries = [
            _entry(user, Operation[operation.upper()], kind, name)
            for kind, name in named.items()
            if name is not None
            for operation in operations
        ]
        with Admin(**self.login(_ADMIN)) as admin:
            for error in admin.create_acls(entries).values():
                if error is not None:
                    raise error


def _entry(user: str, operation: Operation, kind: ResourceType, name: str) -> Acl:
    is_prefix = len(name) > 1 and name.endswith("*")
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    resource = name.removesuffix("*") if is_prefix else name
    return Acl(kind, pattern, resource, f"User:{user}", "*", operation, Permission.ALLOW)


def _settings(password: str) -> dict[str, str]:
    return {
        "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            f'PlainLoginModule required user_{_ADMIN}="{password}";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{_ADMIN};User:ANONYMOUS",
    }
