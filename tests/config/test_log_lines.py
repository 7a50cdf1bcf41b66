"""Settings of the broker's log: levels by component, and texts of wrong ones."""

from __future__ import annotations

import pytest

from ottla.config.broker import parse_broker_config
from ottla.config.environment import read_environment
from ottla.config.log_lines import LogLevelError, parse_log_levels
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigErrors
from tests.config.test_broker import NODE


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {"root": 20}),
        ("debug", {"root": 10}),
        ("TRACE", {"root": 5}),
        ("WARN, groups=DEBUG", {"root": 30, "groups": 10}),
        ("groups=TRACE,WARNING", {"root": 30, "groups": 5}),
        ("ottla.network=off", {"root": 20, "network": 60}),
        ("kafka.request.logger=DEBUG", {"root": 20, "requests": 10}),
        ("root=FATAL", {"root": 50}),
    ],
)
def test_levels_by_component(text: str, levels: dict[str, int]) -> None:
    """One level for all, others by Ottla's or Kafka's name; the names of log4j and of Python."""
    assert parse_log_levels(text) == levels


def test_variables_of_log4j_set_levels() -> None:
    """As in Kafka's images; loggers that nothing here corresponds to are left out."""
    variables = {
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
        "KAFKA_LOG4J_LOGGERS": "kafka.request.logger=DEBUG,kafka.zookeeper=WARN",
    }
    names = tuple(OwnSettings.keys)
    found = read_environment(variables, is_known=lambda _: False, own=names, read_file=str)
    assert found.settings["log.level"].value == "WARN,kafka.request.logger=DEBUG"
    assert found.warnings == []
    own = {**variables, "OTTLA_LOG_LEVEL": "ERROR"}
    found = read_environment(own, is_known=lambda _: False, own=names, read_file=str)
    assert found.settings["log.level"].value == "ERROR"
    del variables["KAFKA_LOG4J_ROOT_LOGLEVEL"]
    found = read_environment(variables, is_known=lambda _: False, own=names, read_file=str)
    assert parse_log_levels(found.settings["log.level"].value) == {"root": 20, "requests": 10}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "LOUD",
            "'LOUD' is no log level; levels are TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF",
        ),
        ("group=DEBUG", "'group' is no component of the log; did you mean groups?"),
        ("xyzzy=DEBUG", "'xyzzy' is no component of the log; components are broker, config, "),
    ],
)
def test_what_is_no_level(text: str, said: str) -> None:
    """The text names what was given and what is near."""
    with pytest.raises(LogLevelError) as refused:
        parse_log_levels(text)
    assert str(refused.value).startswith(said)


def test_a_wrong_level_is_a_problem_of_the_configuration() -> None:
    """It is listed with all others before a node starts."""
    given = {**NODE, "log.level": "LOUD", "log.format": "xml", "log.file.backups": "0"}
    with pytest.raises(ConfigErrors) as refused:
        parse_broker_config(given)
    text = str(refused.value)
    assert "Invalid value LOUD for configuration log.level: 'LOUD' is no log level" in text
    assert "Invalid value xml for configuration log.format: String must be one of" in text
    assert "Invalid value 0 for configuration log.file.backups: Value must be at least 1" in text
