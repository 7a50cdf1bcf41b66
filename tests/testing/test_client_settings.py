"""`--ottla-config`: the settings of a broker with TLS or a login, in the words of each library."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from ottla.testing import ClusterError, ForeignCluster, Kafka
from ottla.testing.client_settings import read_client_settings

if TYPE_CHECKING:
    from pathlib import Path

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'PlainLoginModule required username="u" password="p";',
}
STORES = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/ca.pem",
    "ssl.keystore.location": "/client.pem",
    "ssl.endpoint.identification.algorithm": "",
}


def fixture(settings: dict[str, str]) -> Kafka:
    """Return the fixture of a broker that is asked for nothing."""
    return Kafka(ForeignCluster("h:1", settings))


def test_a_login_is_given_to_every_library() -> None:
    """Settings of the call come last."""
    kafka = fixture(LOGIN)
    assert kafka.client_settings == {**LOGIN, "bootstrap.servers": "h:1"}
    assert kafka.confluent(group_id="g") == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "group.id": "g",
    }
    python = {
        "bootstrap_servers": "h:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }
    assert kafka.aiokafka() == kafka.kafka_python() == python
    assert kafka.spark_options(subscribe="t") == {
        "kafka.bootstrap.servers": "h:1",
        **{f"kafka.{name}": value for name, value in LOGIN.items()},
        "subscribe": "t",
    }


def test_pem_files_are_given_to_librdkafka() -> None:
    """Under its own names."""
    assert fixture(STORES).confluent() == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/client.pem",
        "ssl.key.location": "/client.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_python_clients_get_a_context() -> None:
    """Made as the native clients make theirs."""
    context = fixture({"security.protocol": "SSL"}).aiokafka()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname


def test_a_broker_without_settings_gets_the_address_only() -> None:
    """As before."""
    kafka = fixture({})
    assert kafka.confluent() == {"bootstrap.servers": "h:1"}
    assert kafka.aiokafka() == kafka.kafka_python() == {"bootstrap_servers": "h:1"}


def test_the_file_is_one_of_kafkas_tools(tmp_path: Path) -> None:
    """The address is that of --ottla-url; what cannot be read is named."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nbootstrap.servers=other:1\n")
    assert read_client_settings(str(path)) == {"security.protocol": "SSL"}
    with pytest.raises(ClusterError, match=r"^--ottla-config nowhere: No such file or directory$"):
        read_client_settings("nowhere")
    path.write_text("a=\\u00zz")
    with pytest.raises(ClusterError, match=r"client\.properties: Malformed"):
        read_client_settings(str(path))
    misspelt = ForeignCluster("h:1", {"security.protocl": "SSL"})
    with pytest.raises(ClusterError, match=r"did you mean .security\.protocol"), misspelt:
        pass
