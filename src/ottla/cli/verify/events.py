"""Events of the verifiable tools: one line of JSON each, flushed to standard output.

Kafka: the ProducerEvent and ConsumerEvent classes of org.apache.kafka.tools.Verifiable*.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

from ottla.cli.output.message_json import json_text

SIGNAL_STATUS = 128


class EventWriter:
    """Writes events from any thread without interleaving."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, name: str, **fields: Any) -> None:
        """Write an event with the current time and the fields in the given order."""
        stamp = time.time_ns() // 1_000_000
        line = json_text({"timestamp": stamp, "name": name, **fields})
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


class StopRequest:
    """Whether SIGTERM or SIGINT was received; the loop then ends after its final events."""

    def __init__(self) -> None:
        self.number = 0

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: object) -> None:
        self.number = number

    @property
    def status(self) -> int:
        """The exit code: 0 without a signal, else the shell's code for it."""
        return SIGNAL_STATUS + self.number if self.number else 0
