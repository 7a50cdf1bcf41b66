"""Structured log lines, one for each event: key=value or JSON.

Kafka: the log4j2 configuration of its scripts.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from ottla.config.log_lines import TRACE, LoggingSettings, parse_log_levels
from ottla.server.logging.limits import (
    LimitedHandler,
    LimitedLines,
    LineLimit,
    RotatedFile,
    WatchedFile,
)
from ottla.server.logging.loggers import OTTLA, logger_name
from ottla.server.logging.texts import (
    MAX_TRACEBACK_CHARACTERS,
    bounded,
    escape,
    message_of,
    shortened,
)
from ottla.server.system.clock import SystemClock

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
