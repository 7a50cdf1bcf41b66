"""A node with a listener for each protocol and role, its users and what it believes.

In this process the clock is moved, and Kerberos is a stand-in; real Kafka needs its time.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.network import kerberos
from ottla.testing.cluster import Cluster
from tests.security.kerberos_stand_in import REALM, TICKET_S, Centre
from tests.security.tokens import keys
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

SESSION_S: Final = 60
"""connections.max.reauth.ms; on real Kafka the steps before its end take real time."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ROLES: Final = ("CLIENTS", "BROKERS", "CONTROLLERS")
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*PASSWORDS, "TOKEN", "OAUTHBEARER", "GSSAPI")
"""TOKEN is a delegation token, which logs in by SCRAM."""
HOST: Final = "127.0.0.1"
SERVICE: Final = f"kafka/{HOST}@{REALM}"
_MODULES: Final = "org.apache.kafka.common.security."
_SCRAM: Final = f"{_MODULES}scram.ScramLoginModule required;"
_NODE_USER: Final = 'username="node" password="n" user_node="n"'
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"


def listeners(broker_protocol: str) -> list[str]:
    """Return the names of a node's listeners; one is for the brokers."""
    made = [f"{role}_{protocol}" for role in (ROLES[0], ROLES[2]) for protocol in PROTOCOLS]
    return [f"BROKERS_{broker_protocol}", *made]


def node_settings(
    path: Path, broker_protocol: str, users: Iterable[str], mechanisms: Iterable[str]
) -> dict[str, str]:
    """Return the settings of a node, but for its addresses."""
    names = listeners(broker_protocol)
    known = users_text(users)
    controllers = [name for name in names if name.startswith("CONTROLLERS")]
    controllers.sort(key=lambda name: name != "CONTROLLERS_SASL_SSL")  # the nodes' own is first
    own: dict[str, str] = {}
    for name in names:
        prefix = f"listener.name.{name.lower()}."
        own |= {
            f"{prefix}plain.sasl.jaas.config": known,
            f"{prefix}scram-sha-256.sasl.jaas.config": _SCRAM,
            f"{prefix}scram-sha-512.sasl.jaas.config": _SCRAM,
            f"{prefix}oauthbearer.sasl.jaas.config": (
                f"{_MODULES}oauthbearer.OAuthBearerLoginModule required;"
            ),
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": (
                f"{_MODULES}oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{prefix}gssapi.sasl.jaas.config": (
                "a.Krb required useKeyTab=true storeKey=true "
                f'keyTab="{path / "keytab"}" principal="{SERVICE}";'
            ),
            f"{prefix}connections.max.reauth.ms": str(SESSION_S * 1000),
            f"{prefix}sasl.enabled.mechanisms": ",".join(mechanisms),
        }
    return own | {
        "listener.security.protocol.map": ",".join(
            f"{name}:{name.partition('_')[2]}" for name in names
        ),
        "inter.broker.listener.name": names[0],
        "controller.listener.names": ",".join(controllers),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        "sasl.kerberos.service.name": "kafka",
        "sasl.oauthbearer.jwks.endpoint.url": (path / "keys").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "delegation.token.secret.key": "secret",
        "connection.failed.authentication.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
        "ssl.client.auth": "required",
    }


def users_text(users: Iterable[str]) -> str:
    """Return the JAAS text of PLAIN; each password is the name."""
    known = " ".join(f'user_{user}="{user}"' for user in users)
    return f"{_MODULES}plain.PlainLoginModule required {_NODE_USER} {known};"


def write_files(path: Path) -> None:
    """Write keys, certificates and what is believed."""
    authority, other = Authority(), Authority()
    (path / "keys").write_bytes(keys())
    (path / "keytab").write_text(f"{SERVICE} s\n")
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    (path / "other.pem").write_text(other.pair.certificate_pem)
    authority.issue("node").write_pem(path / "node.pem")
    authority.issue("client").write_pem(path / "client.pem")
    authority.issue("client", days=-1).write_pem(path / "expired.pem")
    other.issue("client").write_pem(path / "foreign.pem")


class Site:
    """One node, as its clients see it."""

    def __init__(
        self,
        path: Path,
        addresses: Mapping[str, str],
        users: Sequence[str],
        *,
        now_ms: Callable[[], int],
        pass_time: Callable[[], None],
    ) -> None:
        """Take the files, listeners, users of PLAIN, the node's time, what ends all sessions."""
        self.path = path
        self.users = users
        self.addresses = addresses
        self.now_ms = now_ms
        self.pass_time = pass_time
        self.centre = Centre({SERVICE: "s"})
        self.admin = Admin(
            bootstrap_servers=addresses["CLIENTS_SASL_PLAINTEXT"],
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="node",
            sasl_password="n",
        )

    def set_config(self, name: str, value: str) -> None:
        """Change a setting of the node."""
        resource = ConfigResource(ResourceType.BROKER, "1")
        assert self.admin.alter_configs({resource: {name: value}}) == {resource: None}

    def set_password(self, user: str, mechanism: str) -> None:
        """Give a user a password: the name."""
        done = self.admin.alter_user_scram_credentials({user: user}, mechanism=mechanism)
        assert done == {user: None}

    def forget_password(self, user: str, mechanism: str) -> None:
        """Take it away."""
        done = self.admin.alter_user_scram_credentials(delete=[user], mechanism=mechanism)
        assert done == {user: None}


@contextmanager
def local_site(path: Path, broker_protocol: str, users: Sequence[str]) -> Iterator[Site]:
    """Run a node in this process."""
    write_files(path)
    names = ",".join(f"{name}://{HOST}:0" for name in listeners(broker_protocol))
    mechanisms = [one for one in MECHANISMS if one != "TOKEN"]
    settings = node_settings(path, broker_protocol, users, mechanisms)
    settings |= {"listeners": names, ALLOWED_FILES: str(path / "keys")}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        centre = Centre({SERVICE: "s"})
        patch.setattr(kerberos, "system_kerberos", lambda: centre)
        cluster = stack.enter_context(Cluster(config=settings))

        def pass_time() -> None:
            cluster.clock.advance(seconds=2 * SESSION_S)
            centre.now_s += TICKET_S

        found = cluster.run(lambda node: dict(node.addresses))
        addresses = {name: f"{host}:{port}" for name, (host, port) in found.items()}
        site = Site(path, addresses, users, now_ms=cluster.clock.now_ms, pass_time=pass_time)
        stack.callback(site.admin.close)
        site.centre = centre
        yield site
