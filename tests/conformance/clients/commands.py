"""Parts shared by the Python clients: record contents, output by lines, the stop signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST_TIMESTAMP_MS = 1_700_000_000_000


def value_of(number: int) -> bytes:
    """Return the value of the record of this number; long enough for codecs to shorten it."""
    return b"%08d" % number + b"." * 100


def key_of(number: int) -> bytes:
    """Return the key of the record of this number."""
    return b"%d" % number


def timestamp_of(number: int) -> int:
    """Return the time of the record of this number: one second apart, in milliseconds."""
    return FIRST_TIMESTAMP_MS + number * 1000


RECORDS_OF_A_TRANSACTION = 3
ABORTED = 2
"""Transactions whose number has this remainder by three are aborted."""


def isolation() -> str:
    """Return the isolation level with which `consume` reads."""
    return os.environ.get("STOCK_ISOLATION", "read_uncommitted")


def group_settings() -> dict[str, str | int]:
    """Return the settings of a member: the broker sets the interval of the consumer protocol."""
    protocol = os.environ.get("STOCK_PROTOCOL", "classic")
    interval: dict[str, str | int] = {"heartbeat.interval.ms": 300}
    return {"group.protocol": protocol} | (interval if protocol == "classic" else {})


def say(*words: object) -> None:
    """Print one line and flush: the test reads it immediately."""
    print(*words, flush=True)


def stop_event() -> threading.Event:
    """Return the event that is set when the test stops the program."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return stopped


def main(commands: Mapping[str, Callable[[list[str]], None]]) -> None:
    """Run the command that the first argument names."""
    commands[sys.argv[1]](sys.argv[2:])
