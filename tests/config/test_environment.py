"""Settings from the environment; the rule itself against Kafka's image in tests/conformance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.config.environment import (
    EnvironmentSettings,
    SourcedValue,
    property_name,
    read_environment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN = {"log.dirs", "node.id", "ssl.key.password", "sasl.oauthbearer.assertion.file", "a-b_c"}
OWN = ("log.format", "metrics.listener", "metrics.names")
FILES = {"/run/secret": "s3cret\n", "/run/two": "first\nsecond\r\n"}


def read(environ: Mapping[str, str]) -> EnvironmentSettings:
    """Read an environment in which only KNOWN is known."""

    def read_file(path: str) -> str:
        if path not in FILES:
            raise FileNotFoundError(2, "No such file or directory", path)
        return FILES[path]

    return read_environment(environ, is_known=KNOWN.__contains__, own=OWN, read_file=read_file)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_A_B_C", "a.b.c"),
        ("KAFKA_FOO__BAR", "foo_bar"),
        ("KAFKA_FOO___BAR", "foo-bar"),
        ("KAFKA_LISTENER_NAME_A__B_SSL_KEYSTORE_TYPE", "listener.name.a_b.ssl.keystore.type"),
        ("OTTLA_METRICS_LISTENER", "metrics.listener"),
    ],
)
def test_names(variable: str, name: str) -> None:
    """Underscores stand for dots, two for one, three for a dash."""
    assert property_name(variable) == name


def test_settings_carry_their_variable() -> None:
    """Every value says which variable it comes from; others are left alone."""
    found = read({"KAFKA_NODE_ID": "3", "OTTLA_METRICS_NAMES": "both", "HOME": "/", "kafka_x": "1"})
    assert found.settings == {
        "node.id": SourcedValue("3", "KAFKA_NODE_ID"),
        "metrics.names": SourcedValue("both", "OTTLA_METRICS_NAMES"),
    }
    assert (found.problems, found.warnings) == ([], [])


def test_secrets_from_files() -> None:
    """`_FILE` after a known name is a path, unless the setting itself ends with it."""
    found = read(
        {
            "KAFKA_SSL_KEY_PASSWORD_FILE": "/run/secret",
            "KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE": "/run/assertion",
        }
    )
    assert found.settings["ssl.key.password"] == SourcedValue(
        "s3cret", "KAFKA_SSL_KEY_PASSWORD_FILE"
    )
    assert found.settings["sasl.oauthbearer.assertion.file"].value == "/run/assertion"


def test_only_the_last_line_end_goes() -> None:
    """A secret of several lines stays whole."""
    found = read({"KAFKA_SSL_KEY_PASSWORD_FILE": "/run/two"})
    assert found.settings["ssl.key.password"].value == "first\nsecond"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"KAFKA_SSL_KEY_PASSWORD_FILE": "/none"},
            "cannot read /none, which KAFKA_SSL_KEY_PASSWORD_FILE names",
        ),
        (
            {"KAFKA_SSL_KEY_PASSWORD_FILE": "/run/secret", "KAFKA_SSL_KEY_PASSWORD": "x"},
            "KAFKA_SSL_KEY_PASSWORD and KAFKA_SSL_KEY_PASSWORD_FILE both give ssl.key.password",
        ),
        (
            {"OTTLA_METRIC_LISTENER": ":9404"},
            "OTTLA_METRIC_LISTENER is no setting; did you mean OTTLA_METRICS_LISTENER?",
        ),
        (
            {"OTTLA_LOG_FORMT": "json"},
            "OTTLA_LOG_FORMT is no setting; did you mean OTTLA_LOG_FORMAT?",
        ),
    ],
)
def test_problems(environ: dict[str, str], message: str) -> None:
    """Invalid variables are named; no secret is shown."""
    (problem,) = read(environ).problems
    assert problem.message.startswith(message)
    assert "s3cret" not in problem.message


def test_what_is_no_setting() -> None:
    """JVM options get one warning together; Kubernetes variables none."""
    found = read(
        {
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "KAFKA_OPTS": "-Da=b",
            "KAFKA_PORT": "tcp://10.0.0.1:9092",
            "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
            "KAFKA_SERVICE_HOST": "10.0.0.1",
            "KAFKA_HEADLESS_SERVICE_PORT_CLIENTS": "9092",
            "OTTLA_BOOTSTRAP_SERVERS": "localhost:9092",
            "OTTLA_PROFILE": "prod",
            "OTTLA_XYZZY": "1",
        }
    )
    assert found.settings == {}
    assert found.problems == []
    (warning,) = found.warnings
    assert warning.startswith("KAFKA_HEAP_OPTS, KAFKA_OPTS: ignored")


def test_the_files_of_apaches_image_are_in_its_directory_of_secrets() -> None:
    """KAFKA_SSL_…_FILENAME names a store, …_CREDENTIALS a file with its password."""
    files = {"/etc/kafka/secrets/key_creds": "p1\n", "/run/other": "p2"}
    found = read_environment(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "kafka.keystore.jks",
            "KAFKA_SSL_TRUSTSTORE_FILENAME": "/mnt/trust.jks",
            "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "/run/other",
        },
        is_known=lambda name: name.startswith("ssl."),
        own=(),
        read_file=files.__getitem__,
    )
    assert {name: one.value for name, one in found.settings.items()} == {
        "ssl.keystore.location": "/etc/kafka/secrets/kafka.keystore.jks",
        "ssl.truststore.location": "/mnt/trust.jks",
        "ssl.key.password": "p1",
        "ssl.keystore.password": "p2",
    }
    missing = read({"KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "absent"})
    assert "cannot read /etc/kafka/secrets/absent" in missing.problems[0].message
