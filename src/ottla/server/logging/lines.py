"""The formats of log lines, and the levels of loggers.

Kafka: the log4j2 configuration of its scripts; org.apache.kafka.server.logger.LoggingController,
ConfigAdminManager's part for loggers.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ottla.config.log_lines import (
    COMPONENTS,
    KAFKA_LOGGERS,
    LEVELS,
    ROOT,
    TRACE,
    LoggingSettings,
    parse_log_levels,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.server.logging.limits import (
    MAX_TRACEBACK_CHARACTERS,
    LimitedHandler,
    LimitedLines,
    LineLimit,
    RotatedFile,
    WatchedFile,
    bounded,
    escape,
    message_of,
    shortened,
)
from ottla.server.system.timers import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "limited_by",
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that the caller passed as `extra`, to be written."""
    return {key: bounded(value) for key, value in record.__dict__.items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    stamp = datetime.fromtimestamp(int(record.created), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{int(record.msecs):03d}Z"


class KeyValueFormatter(logging.Formatter):
    """`time level logger message key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows indented when there is one."""
        pairs = " ".join(
            f"{key}={json.dumps(escape(str(value)))}" for key, value in _fields(record).items()
        )
        line = f"{_time(record)} {record.levelname} {record.name} {escape(message_of(record))}"
        line = f"{line} {pairs}" if pairs else line
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            for traced in shortened(traceback, MAX_TRACEBACK_CHARACTERS).split("\n"):
                line += "\n  " + escape(traced)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback is a field of it."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            **_fields(record),
        }
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            fields["traceback"] = shortened(traceback, MAX_TRACEBACK_CHARACTERS)
        return json.dumps(fields, default=str)


def configure_logging(settings: LoggingSettings | None = None) -> None:
    """Send Ottla's log lines where the settings say: to standard error, or to a file.

    With a file, standard error gets only warnings and errors. Lines of the HTTP library have the
    same handlers and format. OSError when the file cannot be opened.
    """
    settings = settings or LoggingSettings({}, {})
    logging.addLevelName(TRACE, "TRACE")
    formatter = JsonFormatter() if settings.log_format == "json" else KeyValueFormatter()
    handlers: list[logging.Handler] = [LimitedHandler(LineLimit(SystemClock().monotonic_ms))]
    if settings.log_file:
        handlers[0].setLevel(logging.WARNING)
        handlers.append(_file_handler(settings))
    for handler in handlers:
        handler.setFormatter(formatter)
    for name in (OTTLA, "uvicorn"):
        logger = logging.getLogger(name)
        for replaced in logger.handlers:
            if isinstance(replaced, LimitedLines):
                replaced.close()
        logger.handlers[:] = handlers
        logger.propagate = False
    for component, level in parse_log_levels(settings.log_level).items():
        logging.getLogger(logger_name(component)).setLevel(level)


def _file_handler(settings: LoggingSettings) -> logging.Handler:
    limit = LineLimit(SystemClock().monotonic_ms)
    path: str = settings.log_file
    if settings.log_file_max_bytes == 0:
        return WatchedFile(limit, path)
    size, backups = settings.log_file_max_bytes, settings.log_file_backups
    return RotatedFile(limit, path, max_bytes=size, backups=backups)


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
