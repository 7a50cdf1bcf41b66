"""Settings: names, types, secrets."""

from __future__ import annotations

import pytest

from ottla.clients.producer.sender import is_idempotent
from ottla.clients.settings import ADMIN, CONSUMER, PRODUCER, read_settings
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
    assert "fetch.min.bytes: 'x' is not a valid value" in caught.value.message


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
