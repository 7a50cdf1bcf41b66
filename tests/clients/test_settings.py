"""Settings: names, types, secrets."""

from __future__ import annotations

import re

import pytest

from ottla.clients.producer.sender import is_idempotent
from ottla.clients.settings import (
    ADMIN,
    COMMON,
    CONSUMER,
    PRODUCER,
    SettingParser,
    is_sensitive,
    read_settings,
)
from ottla.config import other_clients
from ottla.config.client import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import Type
from ottla.config.other_clients import _ADVICE
from ottla.errors import ErrorCode, KafkaError


def test_dotted_names_and_keywords_mean_the_same() -> None:
    """A mapping with dotted names and keywords with underscores are merged; keywords win."""
    read = read_settings(
        PRODUCER, {"linger.ms": "20", "acks": "all"}, {"linger_ms": 7, "batch_size": 5}
    )
    assert (read.linger_ms, read.acks, read.batch_size) == (7, -1, 5)
    assert read.given == {"linger.ms", "acks", "batch.size"}


def test_an_unknown_name_is_told_with_the_nearest_one_in_the_same_spelling() -> None:
    """All problems come in one error, each with a proposal."""
    with pytest.raises(KafkaError) as caught:
        read_settings(CONSUMER, {"gruop.id": "g"}, {"max_poll_record": 1, "fetch_min_bytes": "x"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "'gruop.id'; did you mean 'group.id'?" in caught.value.message
    assert "'max_poll_record'; did you mean 'max_poll_records'?" in caught.value.message
    assert "Invalid value x for configuration fetch.min.bytes" in caught.value.message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("message.timeout.ms", "here it is 'delivery.timeout.ms'"),
        ("queue_buffering_max_ms", "here it is 'linger.ms'"),
        ("debug", 'set Python\'s logger "ottla.clients" to DEBUG'),
    ],
)
def test_a_name_of_librdkafka_is_told_with_what_to_use(name: str, hint: str) -> None:
    """And where all of them are."""
    with pytest.raises(KafkaError) as caught:
        read_settings(PRODUCER, {name: "1"}, {})
    expected = f"unknown setting {name!r} (a name of librdkafka): {hint}; see docs/migration.md"
    assert caught.value.message == expected


def test_names_that_librdkafka_has_otherwise_are_settings_here() -> None:
    """The hints of the error are names of these clients, and no setting has one."""
    tables = {*PRODUCER, *CONSUMER, *ADMIN}
    assert set(other_clients.RENAMED.values()) <= tables
    assert not tables & {*other_clients.RENAMED, *other_clients.REPLACED}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("consumer_timeout_ms", "iteration has no end: call poll(timeout=), which returns a list"),
        ("api_version", "versions are negotiated with each broker: leave it out"),
        ("sasl_plain_username", "here it is 'sasl_username'"),
        ("ssl_cafile", "here it is 'ssl_truststore_location'"),
    ],
)
def test_a_name_of_another_python_client_is_reported_with_what_to_use(name: str, hint: str) -> None:
    """As librdkafka's are; the names that they share with Kafka are settings."""
    with pytest.raises(KafkaError) as caught:
        read_settings(CONSUMER, None, {name: "1"})
    library = "kafka-python or aiokafka"
    expected = f"unknown setting {name!r} (a name of {library}): {hint}; see docs/migration.md"
    assert caught.value.message == expected


def test_the_names_of_python_clients_are_settings_here() -> None:
    """The names in the hints exist, and no setting has a name that is refused so."""
    tables = {name.replace(".", "_") for name in (*PRODUCER, *CONSUMER, *ADMIN)}
    named = {word for text in _ADVICE.values() for word in re.findall(r"'(\w+_\w+)'", text)}
    assert named <= tables
    assert not tables & _ADVICE.keys()


def test_secrets_are_never_shown() -> None:
    """Neither repr nor an error message holds a password."""
    read = read_settings(ADMIN, None, {"sasl_password": "hunter2", "client_id": "c"})
    assert "hunter2" not in repr(read)
    assert "[hidden]" in repr(read)
    assert "'c'" in repr(read)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"acks": "1"}, False),
        ({"enable_idempotence": False}, False),
        ({"retries": 0}, False),
        ({"retries": 0, "acks": 1}, False),
    ],
)
def test_acks_other_than_all_switch_idempotence_off(
    values: dict[str, object], expected: object
) -> None:
    """As in Kafka, unless it was asked for."""
    assert is_idempotent(read_settings(PRODUCER, None, values)) is expected


def test_idempotence_asked_for_by_name_refuses_what_excludes_it() -> None:
    """acks=1 and enable.idempotence=true contradict each other."""
    with pytest.raises(KafkaError, match="needs acks=all"):
        is_idempotent(read_settings(PRODUCER, None, {"acks": 1, "enable_idempotence": True}))


def test_java_class_names_of_assignors_are_understood() -> None:
    """A properties file written for Java works."""
    given = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    read = read_settings(CONSUMER, {"partition.assignment.strategy": given}, {})
    assert read.partition_assignment_strategy == ("cooperative-sticky",)


@pytest.mark.parametrize(
    ("ours", "kafka"),
    [(PRODUCER, ProducerConfig), (CONSUMER, ConsumerConfig), (ADMIN, AdminConfig)],
)
def test_every_setting_of_kafka_is_one_of_ours(
    ours: dict[str, SettingParser], kafka: type[ClientConfig]
) -> None:
    """One table: only what Python has instead of classes and stores differs from Kafka's."""
    own = {"sasl.username", "sasl.password", "ssl.context", "internal.leave.group.on.close"}
    # system properties of Java in Kafka
    own |= {f"org.apache.kafka.sasl.oauthbearer.allowed.{kind}" for kind in ("files", "urls")}
    assert set(ours) - own == set(kafka.keys)
    different = {
        name
        for name, definition in kafka.keys.items()
        if not definition.required and ours[name].default != definition.default
    }
    assert different <= {
        "acks",
        "bootstrap.servers",
        "interceptor.classes",
        "partition.assignment.strategy",
        "ssl.keystore.type",
        "ssl.truststore.type",
    }


def test_common_settings_are_in_every_table() -> None:
    """What tools and Spark hand to any connection is known to each client."""
    assert {"bootstrap.servers", "sasl.password", "request.timeout.ms"} <= set(COMMON)
    assert set(COMMON) <= set(PRODUCER) & set(CONSUMER) & set(ADMIN)


def test_wrong_values_are_told_in_kafkas_words() -> None:
    """Ranges, words and durations are those of Kafka's own table."""
    given = {"max.poll.records": "0", "auto.offset.reset": "by_duration:x", "group.protocol": "new"}
    with pytest.raises(KafkaError) as caught:
        read_settings(CONSUMER, given, {})
    for words in (
        "Invalid value 0 for configuration max.poll.records: Value must be at least 1",
        "for configuration auto.offset.reset",
        "for configuration group.protocol",
    ):
        assert words in caught.value.message


def test_no_password_of_kafkas_definitions_is_named_in_an_error() -> None:
    """The passphrase of a key is one, whatever its name."""
    for config in (ProducerConfig, ConsumerConfig, AdminConfig):
        secret = {name for name, key in config.keys.items() if key.type is Type.PASSWORD}
        public = {"ssl.keystore.certificate.chain", "ssl.truststore.certificates"}
        assert {name for name in secret if not is_sensitive(name)} == public
