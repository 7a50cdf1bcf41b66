"""Twenty secrets, and everywhere that they must not appear: logs, answers, dumps, tracebacks."""

from __future__ import annotations

import logging
import re
import secrets
import traceback
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from ottla import Admin, Producer
from ottla.clients.admin.configs import ConfigResource, ResourceType
from ottla.clients.settings import ADMIN, read_settings
from ottla.config.properties import write_properties
from ottla.errors import KafkaError
from ottla.testing.cluster import Cluster
from tests.cli.running import run
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

NAMES = (
    "plain-alice",
    "plain-node",
    "plain-root",
    "plain-dave",
    "scram",
    "wrong-password",
    "token-key",
    "key-password",
    "jaas-dynamic",
    "client-jaas",
    "client-secret",
    "passphrase",
    "env-provider",
    "file-provider",
    "dir-provider",
    "unknown-setting",
    "truststore-password",
    "keystore-password",
    "other-listener",
    "listener-key",
)
PROVIDER = "org.apache.kafka.common.config.provider."


def canaries() -> dict[str, str]:
    """Draw the secrets."""
    return {name: f"canary{secrets.token_hex(12)}" for name in NAMES}


def settings(found: dict[str, str], path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return a node's settings with a canary wherever one can stand."""
    authority = Authority()
    pair = authority.issue("node")
    encryption = BestAvailableEncryption(found["key-password"].encode())
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
    (path / "file.properties").write_text(f"a={found['file-provider']}\n")
    (path / "b").write_text(found["dir-provider"])
    monkeypatch.setenv("OTTLA_TEST_CANARY", found["env-provider"])
    users = " ".join(
        f'user_{one}="{found[f"plain-{one}"]}"' for one in ("alice", "node", "root", "dave")
    )
    users += f' username="node" password="{found["plain-node"]}"'
    return {
        "listeners": "LOGIN://127.0.0.1:0,TLS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "LOGIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.login.plain.sasl.jaas.config": f"a.Plain required {users};",
        "listener.name.other.plain.sasl.jaas.config": (
            f'a.Plain required user_x="{found["other-listener"]}";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": pair.certificate_pem,
        "ssl.key.password": found["key-password"],
        "delegation.token.secret.key": found["token-key"],
        "listener.name.tls.ssl.key.password": found["key-password"],
        "listener.name.other.ssl.key.password": found["listener-key"],
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:root;User:ANONYMOUS",
    }


def admin_settings(cluster: Cluster, user: str, password: str) -> dict[str, Any]:
    """Return a client's settings."""
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": password,
    }


def test_no_canary_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A node and its clients do what shows settings; nothing of it has a secret."""
    found = canaries()
    seen: list[str] = []
    caplog.set_level(logging.DEBUG)
    given = settings(found, tmp_path, monkeypatch)
    with Cluster(config=given, data_dir=str(tmp_path / "data")) as cluster:
        root = admin_settings(cluster, "root", found["plain-root"])
        with Admin(**root) as admin:
            admin.alter_user_scram_credentials({"carol": found["scram"]})
            node = ConfigResource(ResourceType.BROKER, "1")
            name = "listener.name.login.plain.sasl.jaas.config"
            text = given[name].replace(";", f' user_bob="{found["jaas-dynamic"]}";')
            seen.append(repr(admin.alter_configs({node: {name: text}})))
            seen.append(repr(admin.describe_configs([node])))
            token = admin.create_delegation_token()
            seen.append(repr(token))
            seen.append(repr(admin.describe_user_scram_credentials()))
        seen += [refused(cluster, found["wrong-password"]), client_texts(cluster, found, tmp_path)]
        seen.append(cluster.run(lambda node: repr(vars(node.broker.metadata.config))))
        log_files = [str(one) for one in (tmp_path / "data").rglob("*.log")]
    seen.append(" ".join(psutil.Process().cmdline()))
    file = tmp_path / "server.properties"
    file.write_text(write_properties({"log.dirs": "/nowhere", "node.id": "1", **given}))
    with file.open("a") as more:
        more.write(f"own.database.password={found['unknown-setting']}\n")
    for words in (["config", "show", str(file)], ["config", "show", str(file), "--origin"]):
        seen.extend(map(str, run(capsys, *words)))
    metadata = next(one for one in log_files if "__cluster_metadata" in one)
    dumped = run(capsys, "dump-log", "--cluster-metadata-decoder", "--files", metadata)
    seen.extend(map(str, dumped))
    seen.append(caplog.text)
    pattern = re.compile("|".join(found.values()))
    leaks = [match[0] for text in seen for match in pattern.finditer(text)]
    assert [name for name, value in found.items() if value in leaks] == []
    assert len(found) == 20


def refused(cluster: Cluster, password: str) -> str:
    """Log in with a wrong password; return the traceback with its locals."""
    with (
        pytest.raises(KafkaError) as raised,
        Admin(**admin_settings(cluster, "alice", password), request_timeout_ms=2000) as admin,
    ):
        admin.list_topics()
    text = "".join(traceback.format_exception(raised.value))
    captured = traceback.TracebackException.from_exception(raised.value, capture_locals=False)
    return text + "".join(captured.format())


def client_texts(cluster: Cluster, found: dict[str, str], path: Path) -> str:
    """Make settings and clients with secrets of every kind; return how they print."""
    jaas = f'a.Scram required username="carol" password="{found["client-jaas"]}";'
    given = {
        "bootstrap.servers": cluster.bootstrap,
        "config.providers": "env,file,dir",
        "config.providers.env.class": f"{PROVIDER}EnvVarConfigProvider",
        "config.providers.file.class": f"{PROVIDER}FileConfigProvider",
        "config.providers.dir.class": f"{PROVIDER}DirectoryConfigProvider",
        "sasl.jaas.config": jaas,
        "sasl.password": "${env:OTTLA_TEST_CANARY}",
        "ssl.key.password": f"${{file:{path}/file.properties:a}}",
        "ssl.keystore.key": f"${{dir:{path}:b}}",
        "ssl.keystore.password": found["keystore-password"],
        "ssl.truststore.password": found["truststore-password"],
        "sasl.oauthbearer.client.credentials.client.secret": found["client-secret"],
        "sasl.oauthbearer.assertion.private.key.passphrase": found["passphrase"],
    }
    read = read_settings(ADMIN, given, {})
    assert read.sasl_password.reveal() == found["env-provider"]
    texts = [repr(read), repr(vars(read)), str(read)]
    alice = admin_settings(cluster, "alice", found["plain-alice"])
    with Producer(**alice) as producer:
        texts += [repr(producer), repr(vars(producer))]
    return "\n".join(texts)
