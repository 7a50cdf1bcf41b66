"""Levels of the node's loggers, as resources of type BROKER_LOGGER see and change them.

Kafka: org.apache.kafka.server.logger.LoggingController, ConfigAdminManager's part for loggers.

A logger has Ottla's own name or that of the class in Kafka whose lines it writes; `root` is above
all of Ottla's. Levels are the process's and last until it ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = "root"
_OURS: Final = "ottla"
_KAFKA_NAMES: Final[Mapping[str, str]] = {
    "kafka.log.LogManager": "ottla.maintenance",
    "kafka.network.SocketServer": "ottla.network",
    "kafka.server.KafkaApis": "ottla.dispatch",
    "kafka.server.KafkaRaftServer": "ottla.node",
    "org.apache.kafka.controller": "ottla.controller",
    "org.apache.kafka.image.loader": "ottla.metadata",
}
_LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}
SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATION_NAMES: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def logger_levels() -> dict[str, str]:
    """Return the level in force of every logger, by both of its names."""
    known = {name for name in logging.root.manager.loggerDict if name.startswith(f"{_OURS}.")}
    known.update(_KAFKA_NAMES.values())
    names = {ROOT: _OURS, **{name: name for name in sorted(known)}, **_KAFKA_NAMES}
    return {name: _level_name(logging.getLogger(own)) for name, own in names.items()}


def _level_name(logger: logging.Logger) -> str:
    """Return the name of the effective level, or of the next one that lets fewer lines pass."""
    level = logger.getEffectiveLevel()
    return min(
        (name for name in _LEVELS if _LEVELS[name] >= level),
        key=lambda name: _LEVELS[name],
        default="FATAL",
    )


def change_levels(changes: Iterable[tuple[str, int, str | None]], *, only_check: bool) -> None:
    """Set (0) or take back (1) levels, all or none: (logger, operation, level).

    KafkaError INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for what cannot be
    done to a logger; UNKNOWN_SERVER_ERROR without a text, as Kafka, for an unknown operation.
    """
    wanted = list(changes)
    known = logger_levels()
    for name, operation, level in wanted:
        _check(name, operation, level, known)
    if only_check:
        return
    for name, operation, level in wanted:
        own = _OURS if name == ROOT else _KAFKA_NAMES.get(name, name)
        value = _LEVELS[level] if operation == SET and level is not None else logging.NOTSET
        logging.getLogger(own).setLevel(value)


def _check(name: str, operation: int, level: str | None, known: Iterable[str]) -> None:
    if operation not in (SET, DELETE):
        if operation not in _OPERATION_NAMES:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_OPERATION_NAMES[operation]} operation is not allowed for the BROKER_LOGGER "
            "resource",
        )
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and level not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )
