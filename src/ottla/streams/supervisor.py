"""Runs an application and starts it again after a failed micro-batch, with growing pauses.

Kafka: org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler (REPLACE_THREAD).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.streams.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("ottla.streams")

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
_FINAL = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "StreamsException", "another checkpoint")
"""What a restart does not change: another driver, a bad record, a wrong checkpoint."""


def is_final(error: Exception) -> bool:
    """Whether the application would fail again in the same way."""
    return isinstance(error, StreamsException) or any(word in str(error) for word in _FINAL)


def supervise(
    run: Callable[[], bool], sleep: Callable[[float], None], restarts: int | None = None
) -> None:
    """Call `run` until it returns False; after an error wait and call it again.

    `run` returns whether it made progress since its last call, which ends the growth of pauses.
    Raises the error that is final, or the one after the last restart.
    """
    pause = FIRST_PAUSE_S
    failures = 0
    while True:
        try:
            if not run():
                return
            pause, failures = FIRST_PAUSE_S, 0
        except Exception as error:
            failures += 1
            if is_final(error) or (restarts is not None and failures > restarts):
                raise
            log.warning(
                "micro-batch failed, restart in %.0f s: %s",
                pause,
                str(error).partition("\n")[0],
                extra={"event": "streams.restart"},
            )
            sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
