"""Ottla's own settings of the broker's log: levels, format, file and rotation.

Kafka: its log4j2.yaml, the variables KAFKA_LOG4J_ROOT_LOGLEVEL and KAFKA_LOG4J_LOGGERS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.checks import at_least, one_of
from ottla.config.definition import LOW, ConfigTable, Int, Long, Text, key
from ottla.config.problems import invalid, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.problems import ConfigProblem

ROOT: Final = "root"
TRACE: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": 10,
    "INFO": 20,
    "WARN": 30,
    "WARNING": 30,
    "ERROR": 40,
    "FATAL": 50,
    "CRITICAL": 50,
    "OFF": 60,
}
"""Numbers of Python's logging by the names of log4j and of Python."""
COMPONENTS: Final = (
    "broker",
    "config",
    "controller",
    "decompression",
    "disk",
    "dispatch",
    "groups",
    "http",
    "maintenance",
    "metadata",
    "network",
    "node",
    "produce",
    "quota",
    "raft",
    "requests",
    "storage",
    "telemetry",
)
"""Loggers of a node: `ottla.<component>`."""
KAFKA_LOGGERS: Final[Mapping[str, str]] = {
    "kafka.coordinator.group": "groups",
    "kafka.log.LogManager": "maintenance",
    "kafka.log.UnifiedLog": "storage",
    "kafka.network.SocketServer": "network",
    "kafka.request.logger": "requests",
    "kafka.server.KafkaApis": "dispatch",
    "kafka.server.KafkaRaftServer": "node",
    "org.apache.kafka.controller": "controller",
    "org.apache.kafka.image.loader": "metadata",
    "org.apache.kafka.raft": "raft",
}
"""Names of loggers in Kafka, and the component that writes their lines here."""
_MIB: Final = 1024 * 1024


class LogLevelError(ValueError):
    """A level or a component that does not exist; the text names both and the nearest one."""


class LoggingSettings(ConfigTable):
    """Content and place of the broker's log."""

    log_level: Text = key(
        "INFO",
        "Levels of the node's log lines: one for all, then COMPONENT=LEVEL, separated by commas.",
        importance=LOW,
    )
    log_format: Text = key(
        "text", "Format of log lines: text or json.", one_of("text", "json"), LOW
    )
    log_file: Text = key(
        "",
        "File that log lines are written to; standard error then has warnings and errors only.",
        importance=LOW,
    )
    log_file_max_bytes: Long = key(
        100 * _MIB,
        "Size at which the log file is rotated; 0 leaves rotation to logrotate.",
        at_least(0),
        LOW,
    )
    log_file_backups: Int = key(
        10, "Rotated log files that are kept: FILE.1 is the newest.", at_least(1), LOW
    )

    @property
    def level_problems(self) -> list[ConfigProblem]:
        """The problems of log.level."""
        try:
            parse_log_levels(self.log_level)
        except LogLevelError as error:
            return [invalid("log.level", self.log_level, str(error))]
        return []


def parse_log_levels(text: str) -> dict[str, int]:
    """Read `INFO,groups=DEBUG,kafka.request.logger=TRACE`; component, or "root", to level.

    Raises LogLevelError.
    """
    levels = {ROOT: LEVELS["INFO"]}
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, separator, level = part.rpartition("=")
        number = LEVELS.get(level.strip().upper())
        if number is None:
            known = "TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF"
            raise LogLevelError(f"{level.strip()!r} is no log level; levels are {known}")
        levels[_component(name.strip()) if separator else ROOT] = number
    return levels


def log4j_levels(root: str, loggers: str) -> str:
    """Return the levels of KAFKA_LOG4J_ROOT_LOGLEVEL and KAFKA_LOG4J_LOGGERS as log.level.

    Loggers of Kafka whose lines no component writes are left out.
    """
    pairs = (item.strip().partition("=") for item in loggers.split(","))
    known = [f"{name}={level}" for name, _, level in pairs if name in KAFKA_LOGGERS]
    return ",".join([*filter(None, [root.strip()]), *known])


def _component(name: str) -> str:
    short = KAFKA_LOGGERS.get(name, name.removeprefix("ottla."))
    if short in COMPONENTS or short == ROOT:
        return short
    meant = nearest(short, COMPONENTS)
    proposal = f"did you mean {meant}?" if meant else f"components are {', '.join(COMPONENTS)}"
    raise LogLevelError(f"{name!r} is no component of the log; {proposal}")
