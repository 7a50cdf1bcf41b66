"""Settings of tools: files, flags, warnings."""

from __future__ import annotations

from contextlib import closing, suppress
from socket import socket
from typing import TYPE_CHECKING

import click
import pytest

from ottla.cli.main import main
from ottla.cli.options import connection
from ottla.cli.options.connection import (
    consumer_settings,
    key_values,
    open_admin,
    producer_settings,
    read_file,
)
from ottla.cli.options.flags import require
from ottla.cli.output.failures import java_text
from ottla.clients.settings import ADMIN
from ottla.config.client import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.security.jaas import parse_jaas
from ottla.testing.cluster import Cluster
from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.kafka import Kafka


def test_files_of_settings(tmp_path: Path) -> None:
    """A properties file is read; a missing or broken one is a plain error."""
    file = tmp_path / "client.properties"
    file.write_text("acks=1\n# note\nlinger.ms = 7\n")
    assert read_file(str(file)) == {"acks": "1", "linger.ms": "7"}
    assert read_file(None) == {}
    with pytest.raises(click.ClickException, match="cannot read"):
        read_file(str(tmp_path / "none"))


def test_flags_of_settings() -> None:
    """name=value pairs; anything else is refused in Kafka's words."""
    assert key_values(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(click.UsageError, match="Invalid command line properties: oops"):
        key_values(["oops"])
    with pytest.raises(click.UsageError, match=r'Missing required argument "\[topic\]"'):
        require(None, "topic")


def test_settings_of_javas_client_are_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """A file for Kafka's tools works; only an unknown name causes a warning."""
    kept = producer_settings(
        {"acks": "1", "key.serializer": "x.Y", "ssl.protocol": "TLSv1.3", "linger.m": "5"}
    )
    assert kept == {"acks": "1", "ssl.protocol": "TLSv1.3"}
    assert capsys.readouterr().err == (
        "warning: unknown setting linger.m; did you mean linger.ms?\n"
    )
    assert consumer_settings({"group.id": "g"}) == {"group.id": "g"}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "GroupIdNotFoundException"),
        (ErrorCode.NON_EMPTY_GROUP, "GroupNotEmptyException"),
        (ErrorCode.TOPIC_ALREADY_EXISTS, "TopicExistsException"),
    ],
)
def test_errors_carry_javas_names(code: ErrorCode, name: str) -> None:
    """Tools print the exception's class, as Kafka's do."""
    assert java_text(KafkaError(code, "why")) == f"org.apache.kafka.common.errors.{name}: why"
    assert java_text(ValueError("plain")) == "plain"


@pytest.mark.parametrize(
    ("call", "before"),
    [
        ("topics --list", ""),
        ("cluster cluster-id", ""),
        ("log-dirs --describe", ""),
        ("broker-api-versions", ""),
        ("consumer-groups --list", "Error: Executing consumer group command failed due to "),
        ("configs --describe --topic t", "org.apache.kafka.common.config.ConfigException: "),
        ("console-producer --topic t", "org.apache.kafka.common.config.ConfigException: "),
    ],
)
def test_settings_that_a_client_refuses(
    call: str, before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid value in --command-config is reported with Kafka's text."""
    file = tmp_path / "wrong.properties"
    file.write_text("request.timeout.ms=abc\n")
    with suppress(SystemExit):
        main([*call.split(), "--bootstrap-server", "127.0.0.1:1", "--command-config", str(file)])
    reported = capsys.readouterr()
    wrong = "Invalid value abc for configuration request.timeout.ms: Not a number of type INT"
    assert (reported.out + reported.err).splitlines()[-1] == before + wrong


def test_a_short_timeout_of_a_tool_limits_its_requests_too() -> None:
    """`consumer-groups --timeout 5000`: the client's own limit of a request is 30 s."""
    with Cluster() as cluster:
        for timeout_ms in (5000, 60_000):
            with open_admin(cluster.bootstrap, None, default_api_timeout_ms=timeout_ms) as admin:
                assert admin.list_topics() == []


def test_a_broker_that_is_absent_is_named_within_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tools repeat it for a minute."""
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.2)
    with closing(socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for tool in (("topics", "--list"), ("cluster", "health"), ("acls", "--list")):
            status, shown, said = run(capsys, *tool, "--bootstrap-server", address)
            assert status == 1
            assert f"cannot reach {address}" in shown + said
    assert connection.CONNECT_TIMEOUT_S <= 10


def test_topics_of_a_controller_are_refused_at_once(
    kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to do."""
    assert isinstance(kafka.cluster, Cluster)
    host, port = kafka.cluster.run(lambda node: node.addresses["CONTROLLER"])
    status, shown, _ = run(capsys, "topics", "--list", "--bootstrap-server", f"{host}:{port}")
    assert status == 1
    assert "METADATA: it is a controller, connect to a broker's listener" in shown


def test_a_tool_takes_the_login_of_javas_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of KAFKA_OPTS, by mechanism, unless the settings have a login; errors name the file."""
    file = tmp_path / "jaas.conf"
    file.write_text(
        'KafkaServer { x.PlainLoginModule required username="server" password="s"; };\n'
        'KafkaClient { x.PlainLoginModule required username="al" password="pw"; };\n'
    )
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={file}")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    found = connection.usable(given, AdminConfig, ADMIN)
    assert parse_jaas(found["sasl.jaas.config"]).options == {"username": "al", "password": "pw"}
    own = {**given, "sasl.username": "own", "sasl.password": "p"}
    assert "sasl.jaas.config" not in connection.usable(own, AdminConfig, ADMIN)
    assert "sasl.jaas.config" not in connection.usable({}, AdminConfig, ADMIN)
    scram = {**given, "sasl.mechanism": "SCRAM-SHA-256"}
    assert "sasl.jaas.config" not in connection.usable(scram, AdminConfig, ADMIN)
    file.write_text("KafkaClient")
    with pytest.raises(click.ClickException, match="cannot read the login file"):
        connection.usable(given, AdminConfig, ADMIN)


@pytest.mark.parametrize("principal", ["alice", ":alice", ""])
def test_a_bad_principal_is_refused_before_anything_is_announced(
    kafka: Kafka, capsys: pytest.CaptureFixture[str], principal: str
) -> None:
    """The tool printed "Adding ACLs" first."""
    add = ("acls", "--bootstrap-server", kafka.bootstrap, "--add", "--topic", "t")
    status, shown, said = run(capsys, *add, "--allow-principal", principal)
    assert status == 1
    assert "expected a string in format principalType:principalName but got" in shown + said
    assert "Adding" not in shown
