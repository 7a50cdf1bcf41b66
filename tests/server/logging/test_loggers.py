"""Levels of loggers as BROKER_LOGGER resources: listed, set, taken back, refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.server.logging.lines import APPEND, DELETE, SET, change_levels, logger_levels

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Put the levels of the test's loggers back."""
    loggers = [logging.getLogger(name) for name in ("ottla", "ottla.dispatch", "ottla.network")]
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


def test_a_level_is_set_and_taken_back() -> None:
    """A logger of its own level ignores the root's; without one it has the root's."""
    change_levels([("root", SET, "ERROR"), ("ottla.dispatch", SET, "DEBUG")], only_check=False)
    assert logging.getLogger("ottla.dispatch").isEnabledFor(logging.DEBUG)
    assert logger_levels()["ottla.dispatch"] == "DEBUG"
    assert logger_levels()["ottla.network"] == logger_levels()["root"] == "ERROR"
    change_levels([("ottla.dispatch", DELETE, None)], only_check=False)
    assert logger_levels()["ottla.dispatch"] == "ERROR"


def test_a_class_of_kafka_names_the_logger_that_writes_its_lines() -> None:
    """Both names show one level."""
    change_levels([("kafka.server.KafkaApis", SET, "TRACE")], only_check=False)
    assert logger_levels()["ottla.dispatch"] == "TRACE"
    assert logging.getLogger("ottla.dispatch").level < logging.DEBUG


def test_a_check_changes_nothing() -> None:
    """only_check finds what is wrong and leaves the levels as they are."""
    change_levels([("root", SET, "WARN")], only_check=False)
    change_levels([("root", SET, "DEBUG")], only_check=True)
    assert logger_levels()["root"] == "WARN"


@pytest.mark.parametrize(
    ("name", "operation", "level", "code"),
    [
        ("nosuch", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("nosuch", DELETE, None, ErrorCode.INVALID_CONFIG),
        ("root", SET, "LOUD", ErrorCode.INVALID_CONFIG),
        ("root", SET, "info", ErrorCode.INVALID_CONFIG),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("root", APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ("root", 9, "INFO", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_cannot_be_done(name: str, operation: int, level: str | None, code: ErrorCode) -> None:
    """One wrong change spoils all of its request."""
    before = logger_levels()
    with pytest.raises(KafkaError) as refused:
        change_levels([("ottla.network", SET, "TRACE"), (name, operation, level)], only_check=False)
    assert refused.value.code is code
    assert logger_levels() == before
