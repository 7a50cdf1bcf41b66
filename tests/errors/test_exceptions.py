"""Tests of the exceptions' classes."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
from pathlib import Path

import pytest

import ottla
from ottla import errors
from ottla.errors import ErrorCode, KafkaError


def test_an_error_code_makes_the_class_named_for_it() -> None:
    """`except` by name works wherever the error was made from its code."""
    error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
    assert type(error) is errors.TopicExistsError
    assert str(error) == "Topic 'orders' already exists."
    assert repr(error) == (
        "TopicExistsError(TOPIC_ALREADY_EXISTS, \"Topic 'orders' already exists.\")"
    )
    assert type(KafkaError(36)) is errors.TopicExistsError
    assert type(KafkaError(code=36, message="x")) is errors.TopicExistsError


def test_codes_without_a_class_are_plain_kafka_errors() -> None:
    """So are codes of newer brokers."""
    assert type(KafkaError(ErrorCode.STALE_BROKER_EPOCH)) is KafkaError
    assert type(KafkaError(9999)) is KafkaError
    assert KafkaError(9999).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_named_error_takes_its_text_alone() -> None:
    """Without one it has Kafka's text."""
    assert errors.TimeoutError().message == ErrorCode.REQUEST_TIMED_OUT.text
    assert errors.IllegalStateError("closed").code is ErrorCode.INVALID_REQUEST


def test_a_timeout_is_also_pythons() -> None:
    """`except TimeoutError` needs no import."""
    with pytest.raises(builtins.TimeoutError, match=r"^after 5 s$"):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "after 5 s")


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.REQUEST_TIMED_OUT, "after 5 s"),
        KafkaError(ErrorCode.STALE_BROKER_EPOCH),
        errors.RecordDeserializationError(("orders", 1, 7), "value", ValueError("no JSON")),
        errors.LogTruncationError(("orders", 1, 7), 5),
        errors.WakeupError("wakeup() was called"),
    ],
    ids=repr,
)
def test_errors_are_pickled_and_copied_whole(error: ottla.OttlaError) -> None:
    """They cross processes in Spark and in process pools."""
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error)
        assert (str(same), repr(same), vars(same)) == (str(error), repr(error), vars(error))


def test_an_unknown_code_of_a_newer_peer_is_an_error_of_its_server() -> None:
    """As in Kafka; what is no code at all is refused."""
    assert ErrorCode(999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert KafkaError(999).code is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="not a valid ErrorCode"):
        ErrorCode("999")  # type: ignore[arg-type] # the point


def test_the_path_of_a_disk_is_for_the_log_only() -> None:
    """Clients get Kafka's text of the code; the log and the start have the details."""
    error = errors.LocalDiskError("Error while appending to t-0: '/data/t-0'")
    assert "/data/t-0" in str(error)
    assert error.message == ErrorCode.KAFKA_STORAGE_ERROR.text
    assert (error.code, isinstance(error, errors.KafkaStorageError)) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        True,
    )
    assert copy.copy(error).message == error.message


def test_nodes_raise_disk_errors_by_the_class_that_hides_paths() -> None:
    """A text for KAFKA_STORAGE_ERROR outside of it is reviewed: it goes to clients."""
    root = Path(ottla.__file__).parent
    raised = re.compile(r"KafkaError\(\s*ErrorCode\.KAFKA_STORAGE_ERROR,")
    packages = ("storage", "raft", "server", "controller", "replication", "coordinator")
    found = [
        path.relative_to(root).as_posix()
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if raised.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["replication/replica_set.py"]  # the reserve of free space, without a path
