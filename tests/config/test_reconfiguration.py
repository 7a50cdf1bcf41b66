"""Validation of dynamic changes, in Kafka's words."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.config.reconfiguration import refusal
from tests.controller.harness import PROPERTIES

WRAPPED = "Invalid value org.apache.kafka.common.config.ConfigException: "


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        (
            {"num.io.threads": "3"},
            f"{WRAPPED}Dynamic thread count update validation failed for num",
        ),
        ({"num.io.threads": "17"}, f"{WRAPPED}Dynamic thread count update validation failed"),
        ({"remote.log.reader.threads": "21"}, f"{WRAPPED}Dynamic thread count update validation"),
        (
            {"log.retention.ms": "10", "log.local.retention.ms": "20"},
            f"{WRAPPED}Invalid value 20 for configuration log.local.retention.ms: Value must not",
        ),
        ({"log.cleaner.threads": "3"}, f"{WRAPPED}Log cleaner threads cannot be increased"),
        ({"log.cleaner.threads": "0"}, "requirement failed: log.cleaner.threads must be at least"),
        ({"log.retention.ms": "0"}, "requirement failed: log.retention.ms must be unlimited"),
        ({"max.connections.per.ip": "0"}, "requirement failed: max.connections.per.ip can be set"),
        ({"max.connections.per.ip.overrides": "a:x"}, 'For input string: "x"'),
        ({"listeners": "nonsense"}, "Unable to parse a listener name from nonsense"),
        ({"cordoned.log.dirs": "/nosuch"}, "requirement failed: All entries in cordoned.log.dirs"),
    ],
)
def test_refused_changes(changes: dict[str, str], begin: str) -> None:
    """The rules of a start hold for changes too; thread counts change in limited steps."""
    static = parse_broker_config(PROPERTIES)
    text = refusal(static, static, changes)
    assert text is not None
    assert text.startswith(begin)


def test_valid_changes() -> None:
    """Steps are relative to the current value, not to the file."""
    static = parse_broker_config(PROPERTIES)
    assert refusal(static, static, {"num.io.threads": "16", "log.retention.ms": "5"}) is None
    current = static.with_dynamic({"num.io.threads": "16"})
    assert refusal(static, current, {"num.io.threads": "32"}) is None
    assert refusal(static, static, {"nobodys.setting": "1"}) is None


def test_a_setting_taken_back_is_that_of_the_file_again() -> None:
    """Changes apply to the values of the file, not to earlier changes."""
    static = parse_broker_config({**PROPERTIES, "log.retention.ms": "9"})
    assert static.with_dynamic({"log.retention.ms": "5"}).log_retention_ms == 5
    assert static.with_dynamic({}).log_retention_ms == 9
