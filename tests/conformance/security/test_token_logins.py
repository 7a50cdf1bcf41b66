"""OAUTHBEARER with clients of others: Kafka's Java client and librdkafka log in at our node."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from ottla.testing.cluster import Cluster
from tests.security.provider import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.security.tokens import signed
from tests.server.security.test_token_logins import SETTINGS, URLS
from tests.waits import WAIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conformance.kafka import Kafka
    from tests.security.provider import Provider

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """Run a provider of tokens."""
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(provider: Provider) -> Iterator[Cluster]:
    """Run a node that believes the provider's tokens."""
    keys = {"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url, URLS: provider.keys_url}
    with Cluster(config={**SETTINGS, **keys}) as running:
        yield running


def test_javas_client(kafka: Kafka, provider: Provider, cluster: Cluster, tmp_path: Path) -> None:
    """It asks the provider with its credentials, as a tool does."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={module} required;\n"
        f"sasl.login.callback.handler.class={handler}\n"
        f"sasl.oauthbearer.token.endpoint.url={provider.token_url}\n"
        f"sasl.oauthbearer.client.credentials.client.id={CLIENT_ID}\n"
        f"sasl.oauthbearer.client.credentials.client.secret={CLIENT_SECRET}\n"
    )
    arguments = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(config))
    creation = ("--create", "--topic", "by-java", "--partitions", "1")
    java, *rest = kafka.command("org.apache.kafka.tools.TopicCommand", *creation, *arguments)
    command = [java, f"-D{URLS}={provider.token_url}", *rest]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "Created topic by-java." in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("is_good", [True, False])
def test_librdkafka(cluster: Cluster, *, is_good: bool) -> None:
    """It is given its token by the program; one for another audience is refused."""
    failures: list[object] = []

    def token(_config: str) -> tuple[str, float]:
        audience = "kafka" if is_good else "others"
        return signed(aud=audience), time.time() + 3600

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
            "error_cb": failures.append,
            "message.timeout.ms": 60_000 if is_good else 2000,
        }
    )
    producer.produce("by-librdkafka", b"value")
    left = producer.flush(WAIT_S)
    if not is_good:  # the message may be given up before the first login is answered
        wait_for(lambda: producer.poll(0.1) >= 0 and bool(failures))
    assert (left, bool(failures)) == (0, not is_good), failures
