"""The connector and the task that a line of the log is about.

Kafka: org.apache.kafka.connect.util.LoggingContext (`connector.context`, KIP-449).
"""

from __future__ import annotations

import logging
import threading
from typing import Final

_FORMAT: Final = "[%(asctime)s] %(levelname)s %(connector_context)s%(message)s"


class _Context(threading.local):
    default = ""

    def __init__(self) -> None:
        self.text: str | None = None


_CONTEXT: Final = _Context()


def connector_context() -> str:
    """Return what this thread works on, `[name|task-0] ` or `[name|worker] `; "" for neither."""
    return _CONTEXT.default if _CONTEXT.text is None else _CONTEXT.text


def set_connector_context(text: str, *, is_default: bool = False) -> None:
    """Say what this thread works on, or by default all threads of a connector's process."""
    if is_default:
        _Context.default = text
    else:
        _CONTEXT.text = text


class _AddContext(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Add this thread's context, unless the line has one of another process."""
        if not hasattr(record, "connector_context"):
            record.connector_context = connector_context()
        return True


def log_with_context() -> None:
    """Log to the standard error, each line with its connector and task."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_AddContext())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
