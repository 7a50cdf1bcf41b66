"""One structured line an event, on standard error: key=value, or JSON where a program reads.

Kafka: the log4j2 configuration of its scripts.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from ottla.server.logging.limits import LimitedHandler, LineLimit
from ottla.server.system.clock import SystemClock

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return what the caller passed as `extra`."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    stamp = datetime.fromtimestamp(int(record.created), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{int(record.msecs):03d}Z"


def escape(text: str) -> str:
    """Make control characters visible, so that no value can forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class KeyValueFormatter(logging.Formatter):
    """`time level logger message key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows indented when there is one."""
        pairs = " ".join(
            f"{key}={json.dumps(escape(str(value)))}" for key, value in _fields(record).items()
        )
        line = f"{_time(record)} {record.levelname} {record.name} {escape(record.getMessage())}"
        line = f"{line} {pairs}" if pairs else line
        if record.exc_info:
            for traced in self.formatException(record.exc_info).split("\n"):
                line += "\n  " + escape(traced)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback is a field of it."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def configure_logging(level: str = "WARNING", style: str = "text") -> None:
    """Send Ottla's log lines to standard error; `style` is "text" or "json".

    Those of the library that serves HTTP go the same way: a reader of JSON meets nothing else.
    """
    handler = LimitedHandler(LineLimit(SystemClock().monotonic_ms))
    handler.setFormatter(JsonFormatter() if style == "json" else KeyValueFormatter())
    for name in ("ottla", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("ottla").setLevel(level.upper())
