"""What a client names in settings: files, keys and classes wait for the right, and for a worker."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.network.fetching import regular_file
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.testing.cluster import Cluster
from tests.security.test_keystores import PBKDF2, pbes2, pem_of
from tests.server.requests.untrusted_clients import Peer
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BROKER, LOGGER, CLUSTER_DENIED = 4, 8, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TLS = "listener.name.tls.ssl."
USERS = "root mallory"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a node with a listener of TLS, where only root may do anything."""
    path = tmp_path_factory.mktemp("stores")
    authority = Authority()
    authority.issue("broker").write_pem(path / "node.pem")
    (path / "ca.pem").write_text(authority.pair.certificate_pem)
    users = " ".join(f'user_{user}="{user}"' for user in USERS.split())
    settings = {
        "listeners": (
            "CLIENTS://127.0.0.1:0,TLS://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
        ),
        "listener.security.protocol.map": (
            "CLIENTS:SASL_PLAINTEXT,TLS:SSL,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"PlainLoginModule required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(path / "ca.pem"),
    }
    with Cluster(config=settings) as running:
        yield running


class Client:
    """One user on one connection."""

    def __init__(self, cluster: Cluster, user: str) -> None:
        self._peer = Peer(cluster.bootstrap)
        self._peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{user}".encode()
        assert not self._peer.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code

    def alter(
        self, values: dict[str, str], *, kind: int = BROKER, who: str = "1", replaces: bool = False
    ) -> tuple[int, str | None]:
        """Return code and text of the answer to a change."""
        cls: Any = AlterConfigsRequest if replaces else IncrementalAlterConfigsRequest
        resource = cls.AlterConfigsResource
        fields = {} if replaces else {"config_operation": 0}
        configs = [
            resource.AlterableConfig(name=name, value=value, **fields)
            for name, value in values.items()
        ]
        asked = resource(resource_type=kind, resource_name=who, configs=configs)
        request = cls(resources=[asked], validate_only=True)
        answer = self._peer.ask(request, 2 if replaces else 1).responses[0]
        return answer.error_code, answer.error_message


@pytest.fixture
def mallory(cluster: Cluster) -> Client:
    """Return a user without any right."""
    return Client(cluster, "mallory")


@pytest.fixture
def root(cluster: Cluster) -> Client:
    """Return a user with all rights."""
    return Client(cluster, "root")


@pytest.mark.parametrize("replaces", [False, True])
def test_a_user_without_a_right_learns_nothing(
    mallory: Client, tmp_path: Path, *, replaces: bool
) -> None:
    """Each change of a broker has one answer, whatever it names and whether that is valid."""
    (tmp_path / "exists").write_text("no certificate")
    changes: list[tuple[dict[str, str], str]] = [
        ({"log.cleaner.threads": "2"}, "1"),
        ({"log.cleaner.threads": "two"}, "1"),
        ({"no.such.setting": "x"}, "1"),
        ({"node.id": "7"}, "1"),
        ({"log.cleaner.threads": "2"}, "2"),
        ({"log.cleaner.threads": "2"}, "no number"),
        ({"metric.reporters": "tests.server.node.receivers.Receiver"}, ""),
        ({"metric.reporters": "no.such.Reporter"}, ""),
        ({f"{TLS}keystore.key": pem_of(pbes2(PBKDF2, 0x7FFF_FFFF))}, "1"),
        ({"listener.name.clients.plain.sasl.jaas.config": "nonsense"}, "1"),
    ]
    paths = (tmp_path / "exists", tmp_path / "absent", tmp_path, "/etc/shadow", "/dev/ptmx")
    changes += [({f"{TLS}truststore.location": str(path)}, "1") for path in paths]
    changes += [({f"{TLS}keystore.location": str(path)}, "1") for path in paths]
    for values, who in changes:
        answer = mallory.alter(values, who=who, replaces=replaces)
        assert answer == (CLUSTER_DENIED, CLUSTER_DENIED.text), values


def test_no_module_of_a_denied_client_is_imported(
    mallory: Client, root: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nor one that a client with the right names, when no package registers it."""
    (tmp_path / "some_module_of_the_machine.py").write_text("class Anything: ...")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    names = {"metric.reporters": "some_module_of_the_machine.Anything"}
    assert mallory.alter(names, who="")[0] == CLUSTER_DENIED
    assert root.alter(names, who="")[0] == ErrorCode.INVALID_REQUEST
    assert "some_module_of_the_machine" not in sys.modules


def test_only_regular_files_are_opened(root: Client, tmp_path: Path) -> None:
    """A pipe, a terminal or a directory is refused, and the next client is served."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for path in (tmp_path / "pipe", "/dev/ptmx", "/dev/zero", tmp_path, tmp_path / "empty"):
        for store in ("truststore", "keystore"):
            code, text = root.alter({f"{TLS}{store}.location": str(path)})
            assert code == ErrorCode.INVALID_REQUEST
            assert "not a regular file" in str(text)
    code, text = root.alter({f"{TLS}truststore.location": str(tmp_path / "absent")})
    assert code == ErrorCode.INVALID_REQUEST
    assert "No such file" in str(text)


def test_rounds_of_a_key_are_bounded(root: Client) -> None:
    """A client with the right keeps no processor busy with the text of a key."""
    change = {
        f"{TLS}keystore.location": "",
        f"{TLS}keystore.type": "PEM",
        f"{TLS}keystore.key": pem_of(pbes2(PBKDF2, 0x7FFF_FFFF)),
        f"{TLS}keystore.certificate.chain": Authority().pair.certificate_pem,
        f"{TLS}key.password": "x",
    }
    code, text = root.alter(change)
    assert code == ErrorCode.INVALID_REQUEST
    assert "too many rounds" in str(text)


def test_files_are_opened_by_workers(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop only compares values."""
    seen: list[str] = []

    def watched(path: str) -> Any:
        seen.append(threading.current_thread().name)
        return regular_file(path)

    monkeypatch.setattr("ottla.network.tls_context.regular_file", watched)
    assert root.alter({"log.cleaner.threads": "2"}) == (0, None)
    assert seen
    assert not [name for name in seen if name.startswith("ottla-node")]


def test_loggers_need_the_right_first(mallory: Client, root: Client) -> None:
    """Which loggers there are, and whether a level is one, is not told before."""
    for values in ({"ottla": "DEBUG"}, {"ottla": "no level"}, {"": "DEBUG"}):
        for who in ("1", "2", "x"):
            assert mallory.alter(values, kind=LOGGER, who=who) == (CLUSTER_DENIED, None)
    assert root.alter({"ottla": "no level"}, kind=LOGGER)[0] == ErrorCode.INVALID_CONFIG


def test_answers_keep_the_order_of_the_request(cluster: Cluster) -> None:
    """Those of denied resources among the others."""
    peer = Client(cluster, "root")._peer
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    asked = [
        resource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in ((BROKER, "2"), (2, "absent"), (LOGGER, "1"), (BROKER, "1"))
    ]
    answer = peer.ask(IncrementalAlterConfigsRequest(resources=asked, validate_only=True), 1)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (BROKER, "2"),
        (2, "absent"),
        (LOGGER, "1"),
        (BROKER, "1"),
    ]
