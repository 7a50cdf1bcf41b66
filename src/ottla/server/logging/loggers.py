"""Levels of the node's loggers, described and changed as resources of type BROKER_LOGGER.

Kafka: org.apache.kafka.server.logger.LoggingController, ConfigAdminManager's part for loggers.

A logger has Ottla's own name, or the name of the Kafka class with the same lines; `root` is the
parent of all of Ottla's. Levels belong to the process and last until it ends, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.config.log_lines import COMPONENTS, KAFKA_LOGGERS, LEVELS, ROOT
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger("ottla.node")
OTTLA: Final = "ottla"
_LEVELS: Final[Mapping[str, int]] = {
    name: LEVELS[name] for name in ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
}
SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATION_NAMES: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def logger_name(component: str) -> str:
    """Return the logger of a component, or of all for "root"."""
    return OTTLA if component == ROOT else f"{OTTLA}.{component}"


def logger_levels() -> dict[str, str]:
    """Return the level in force of every logger, by both of its names."""
    return {name: _level_name(logging.getLogger(own)) for name, own in _loggers().items()}


def _loggers() -> dict[str, str]:
    """Return the loggers' own names by all of their names."""
    known = {name for name in logging.root.manager.loggerDict if name.startswith(f"{OTTLA}.")}
    known.update(map(logger_name, COMPONENTS))
    kafka = {name: logger_name(component) for name, component in KAFKA_LOGGERS.items()}
    return {ROOT: OTTLA, **{name: name for name in sorted(known)}, **kafka}


def _level_name(logger: logging.Logger) -> str:
    """Return the name of the effective level, or of the next stricter one."""
    level = logger.getEffectiveLevel()
    return min(
        (name for name in _LEVELS if _LEVELS[name] >= level),
        key=lambda name: _LEVELS[name],
        default="FATAL",
    )


def change_levels(changes: Iterable[tuple[str, int, str | None]], *, only_check: bool) -> None:
    """Set (0) or reset (1) levels, all or none: (logger, operation, level).

    KafkaError INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for an operation that
    loggers do not have; UNKNOWN_SERVER_ERROR without a text, as Kafka, for an unknown one.
    """
    requested = list(changes)
    known = _loggers()
    for name, operation, level in requested:
        _check(name, operation, level, known)
    if only_check:
        return
    for name, operation, level in requested:
        logger = logging.getLogger(known[name])
        new = None if operation == DELETE else level
        logger.setLevel(logging.NOTSET if new is None else _LEVELS[new])
        changed = (name, _level_name(logger))
        log.info("log level of %s is now %s", *changed, extra={"event": "log.level"})


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
